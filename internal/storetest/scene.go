package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
)

// MustPause pauses a campaign.
func (f *Fixture) MustPause(campaign string) {
	f.TB.Helper()
	if _, err := f.PauseCampaign(f.Ctx, outbox.Order{By: outbox.Operator{Name: "scene"}}, campaign); err != nil {
		f.TB.Fatal(err)
	}
}

// Killed makes n campaigns of three events each whose first is dead.
func (f *Fixture) Killed(name string, n int) []string {
	f.TB.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%02d", name, i)
		f.AppendN(ids[i], 3)
	}
	f.Kill(ids...)
	return ids
}

// MustSample takes a sample of how things stand now; what is shared for a moment
// is read anew, as by a process that has just been started.
func (f *Fixture) MustSample() {
	f.TB.Helper()
	if err := f.Beside().Sample(f.Ctx); err != nil {
		f.TB.Fatal(err)
	}
}

// AllCampaigns reads every page of a list of campaigns.
func (f *Fixture) AllCampaigns(filter outbox.CampaignFilter) []outbox.Campaign {
	f.TB.Helper()
	var all []outbox.Campaign
	for range 10_000 {
		page, err := f.Campaigns(f.Ctx, filter)
		if err != nil {
			f.TB.Fatalf("%+v: %v", filter, err)
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all
		}
		filter.Cursor = *page.NextCursor
	}
	f.TB.Fatalf("%+v never ends", filter)
	return nil
}

// Tagged is an event with tags, given as name, value, name, value.
func Tagged(campaign, eventType string, tags ...string) outbox.Event {
	e := Event(campaign, eventType)
	if e.Tags = JSON(Pairs(tags)); len(tags) == 0 {
		e.Tags = nil
	}
	return e
}

// Pairs are the tags in a list of name, value, name, value.
func Pairs(list []string) map[string]string {
	m := make(map[string]string)
	for pair := range slices.Chunk(list, 2) {
		m[pair[0]] = pair[1]
	}
	return m
}

// JSON is a value as a document.
func JSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// AppendN writes n events to a campaign and returns where they stand.
func (f *Fixture) AppendN(campaign string, n int) []store.Appended {
	f.TB.Helper()
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = Event(campaign, "counted")
	}
	return f.MustAppend(events...)
}

// One and Two are workers.
var (
	One = store.Worker{ID: "worker-1", Build: "v1"}
	Two = store.Worker{ID: "worker-2", Build: "v2"}
)

// ClaimOne claims when exactly one campaign must be due.
func (f *Fixture) ClaimOne(w store.Worker, rows int) store.Claim {
	f.TB.Helper()
	claims := f.MustClaim(w, rows)
	if len(claims) != 1 {
		f.TB.Fatalf("claimed %+v, want one campaign", claims)
	}
	return claims[0]
}

// NoClaim fails when anything is due.
func (f *Fixture) NoClaim(w store.Worker) {
	f.TB.Helper()
	if claims := f.MustClaim(w, 1000); len(claims) != 0 {
		f.TB.Fatalf("claimed %+v, want nothing", claims)
	}
}

// LoadClaim reads the events of a claim.
func (f *Fixture) LoadClaim(c store.Claim) ([]outbox.Event, error) {
	loaded, _, err := f.Load(f.Ctx, []store.Range{c.Range()}, 1<<30)
	if err != nil {
		return nil, err
	}
	return loaded[0].Events, nil
}

// MustApply is ApplyClaim where it must reach last.
func (f *Fixture) MustApply(c store.Claim, last int64) {
	f.TB.Helper()
	if reached, err := f.ApplyClaim(c, last); err != nil || reached != last {
		f.TB.Fatalf("apply to %d: reached %d, %v", last, reached, err)
	}
}

// MustSettle settles results.
func (f *Fixture) MustSettle(w store.Worker, results ...store.Result) store.Settled {
	f.TB.Helper()
	settled, err := f.Settle(f.Ctx, w, results)
	if err != nil {
		f.TB.Fatalf("settle: %v", err)
	}
	return settled
}

// Failure is a failed attempt with a message.
func Failure(message string) *readmodel.Failure {
	return &readmodel.Failure{Message: message, Fingerprint: outbox.Fingerprint(message)}
}

// Fail lets the head of each named campaign fail once. They alone must be due.
func (f *Fixture) Fail(message string, campaigns ...string) {
	f.TB.Helper()
	claims := f.MustClaim(One, 1000)
	if len(claims) != len(campaigns) {
		f.TB.Fatalf("claimed %+v, want %q", claims, campaigns)
	}
	for _, c := range claims {
		f.MustSettle(One, store.Result{Claim: c, Applied: c.First - 1, Failure: Failure(message)})
	}
}

// Kill fails the heads of the named campaigns until they are dead. They alone
// must be due.
func (f *Fixture) Kill(campaigns ...string) {
	f.TB.Helper()
	for range f.Retry().Attempts() {
		f.Fail("no such thing", campaigns...)
		f.Clock.Advance(5 * time.Minute)
	}
	for _, id := range campaigns {
		if c := f.MustCampaign(id); c.HeadStatus != outbox.Dead {
			f.TB.Fatalf("head of %s is %s, want dead", id, c.HeadStatus)
		}
	}
}

// MustCampaign reads a campaign.
func (f *Fixture) MustCampaign(id string) outbox.Campaign {
	f.TB.Helper()
	c, err := f.Campaign(f.Ctx, id)
	if err != nil {
		f.TB.Fatal(err)
	}
	return c
}

// MustRow reads a row.
func (f *Fixture) MustRow(campaign string, seq int64) outbox.RowDetail {
	f.TB.Helper()
	d, err := f.Row(f.Ctx, campaign, seq)
	if err != nil {
		f.TB.Fatal(err)
	}
	return d
}

// DeadHead lets the first of three events of campaign a die.
func (f *Fixture) DeadHead() { f.AppendN("a", 3); f.Kill("a") }

// CountRows counts the rows with a status.
func (f *Fixture) CountRows(status outbox.Status) int64 {
	f.TB.Helper()
	return f.Number(`select count(*) from projection_apply_outbox where status = $1`, string(status))
}
