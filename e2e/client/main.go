// Program client exercises an API: given the API's URL and a row that blocks its campaign, it appends behind the row,
// twice with one key, finds the campaign, reads the row, requeues it, and asks for a row that does not exist. An
// answer of another kind than expected ends it.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/e2e/client/api"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, campaign, seq := must(api.NewClientWithResponses(os.Args[1])), os.Args[2], must(strconv.ParseInt(os.Args[3], 10, 64))

	var body api.Append
	must(0, body.FromBatch(api.Batch{Events: []api.NewEvent{{EventType: "made.elsewhere", Payload: map[string]any{"n": 1}}}}))
	key := "client-1"
	for range 2 {
		a := must(c.AppendEventsWithResponse(ctx, campaign, &api.AppendEventsParams{IdempotencyKey: &key}, body))
		for _, e := range must(a.JSON201.AsAppendedBatch()).Events {
			fmt.Printf("appended %s %d\n", e.CampaignId, e.Seq)
		}
	}

	state, limit := api.ListCampaignsParamsStateBlocked, int64(10)
	for _, found := range must(c.ListCampaignsWithResponse(ctx, &api.ListCampaignsParams{State: &state, Limit: &limit})).JSON200.Items {
		fmt.Printf("%s %s at %d\n", found.State, found.CampaignId, found.HeadSeq)
	}
	read := must(c.GetRowWithResponse(ctx, campaign, seq)).JSON200
	fmt.Printf("%s after %d attempts: %v\n", read.Row.Status, len(read.Attempts), *read.Event.Payload)
	reason, status := "the client wants it", api.ExpectedStatusDead
	requeued := must(c.RequeueRowWithResponse(ctx, campaign, seq, nil, api.RequeueRowBody{Reason: &reason, Expected: &api.Expected{Status: &status}})).JSON200
	fmt.Printf("%s again, attempts %d\n", requeued.Status, requeued.AttemptCount)
	fmt.Println(must(c.GetRowWithResponse(ctx, campaign, 1_000)).ApplicationproblemJSON404.Type)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
