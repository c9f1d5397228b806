// Program client exercises an API: given the API's URL and a row that blocks its campaign, it
// appends behind the row, finds the campaign, reads the row and requeues it.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/e2e/client/api"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(url, campaign, row string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seq, err := strconv.ParseInt(row, 10, 64)
	if err != nil {
		return err
	}
	c, err := api.NewClientWithResponses(url)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *api.ClientWithResponses, string, int64) error{appendBehind, findBlocked, readRow, requeue, readNothing} {
		if err := step(ctx, c, campaign, seq); err != nil {
			return err
		}
	}
	return nil
}

// appendBehind appends a batch, twice with one key.
func appendBehind(ctx context.Context, c *api.ClientWithResponses, campaign string, _ int64) error {
	var body api.Append
	err := body.FromBatch(api.Batch{Events: []api.NewEvent{{EventType: "made.elsewhere", Payload: map[string]any{"n": 1}}}})
	if err != nil {
		return err
	}
	key := "client-1"
	for range 2 {
		a, err := c.AppendEventsWithResponse(ctx, campaign, &api.AppendEventsParams{IdempotencyKey: &key}, body)
		if err != nil {
			return err
		}
		if a.JSON201 == nil {
			return fmt.Errorf("append: %s %s", a.Status(), a.Body)
		}
		done, err := a.JSON201.AsAppendedBatch()
		if err != nil {
			return err
		}
		for _, e := range done.Events {
			fmt.Printf("appended %s %d\n", e.CampaignId, e.Seq)
		}
	}
	return nil
}

// findBlocked lists the blocked campaigns.
func findBlocked(ctx context.Context, c *api.ClientWithResponses, _ string, _ int64) error {
	state, limit := api.ListCampaignsParamsStateBlocked, int64(10)
	a, err := c.ListCampaignsWithResponse(ctx, &api.ListCampaignsParams{State: &state, Limit: &limit})
	if err != nil {
		return err
	}
	if a.JSON200 == nil {
		return fmt.Errorf("list campaigns: %s %s", a.Status(), a.Body)
	}
	for _, found := range a.JSON200.Items {
		fmt.Printf("%s %s at %d\n", found.State, found.CampaignId, found.HeadSeq)
	}
	return nil
}

func readRow(ctx context.Context, c *api.ClientWithResponses, campaign string, seq int64) error {
	a, err := c.GetRowWithResponse(ctx, campaign, seq)
	if err != nil {
		return err
	}
	if a.JSON200 == nil {
		return fmt.Errorf("read the row: %s %s", a.Status(), a.Body)
	}
	fmt.Printf("%s after %d attempts: %v\n", a.JSON200.Row.Status, len(a.JSON200.Attempts), *a.JSON200.Event.Payload)
	return nil
}

func requeue(ctx context.Context, c *api.ClientWithResponses, campaign string, seq int64) error {
	reason, status := "the client wants it", api.ExpectedStatusDead
	a, err := c.RequeueRowWithResponse(ctx, campaign, seq, nil, api.RequeueRowBody{Reason: &reason, Expected: &api.Expected{Status: &status}})
	if err != nil {
		return err
	}
	if a.JSON200 == nil {
		return fmt.Errorf("requeue: %s %s", a.Status(), a.Body)
	}
	fmt.Printf("%s again, attempts %d\n", a.JSON200.Status, a.JSON200.AttemptCount)
	return nil
}

// readNothing requests a row that does not exist.
func readNothing(ctx context.Context, c *api.ClientWithResponses, campaign string, _ int64) error {
	a, err := c.GetRowWithResponse(ctx, campaign, 1_000)
	if err != nil {
		return err
	}
	if a.StatusCode() != http.StatusNotFound || a.ApplicationproblemJSON404 == nil {
		return fmt.Errorf("read a row that there is not: %s %s", a.Status(), a.Body)
	}
	fmt.Println(a.ApplicationproblemJSON404.Type)
	return nil
}
