package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// MustPause pauses a campaign.
func (f *Fixture) MustPause(campaign string) {
	f.TB.Helper()
	must.Get(f.PauseCampaign(f.Ctx, outbox.Command{By: outbox.Operator{Name: "scene"}}, campaign)).Or(f.TB)
}

// Killed creates n campaigns of three events each whose first is dead.
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

// MustSample samples the store's current state. It drops cached reads first, like a newly
// started process.
func (f *Fixture) MustSample() {
	f.TB.Helper()
	must.OK(f.TB, f.Beside().Sample(f.Ctx))
}

// AllCampaigns reads every page of a list of campaigns.
func (f *Fixture) AllCampaigns(filter outbox.CampaignFilter) []outbox.Campaign {
	f.TB.Helper()
	var all []outbox.Campaign
	for range 10_000 {
		page, err := f.Campaigns(f.Ctx, filter)
		must.Need(f.TB, err == nil, "%+v: %v", filter, err)
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

// AppendN appends n events to a campaign and returns their positions.
func (f *Fixture) AppendN(campaign string, n int) []store.Appended {
	f.TB.Helper()
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = Event(campaign, "counted")
	}
	return f.MustAppend(events...)
}

// One and Two are two workers.
var (
	One = store.Worker{ID: "worker-1", Build: "v1"}
	Two = store.Worker{ID: "worker-2", Build: "v2"}
)

// ClaimOne claims the one campaign that must be due.
func (f *Fixture) ClaimOne(w store.Worker, rows int) store.Claim {
	f.TB.Helper()
	claims := f.MustClaim(w, rows)
	must.Need(f.TB, len(claims) == 1, "claimed %+v, want one campaign", claims)
	return claims[0]
}

// NoClaim fails when anything is due.
func (f *Fixture) NoClaim(w store.Worker) {
	f.TB.Helper()
	claims := f.MustClaim(w, 1000)
	must.Need(f.TB, len(claims) == 0, "claimed %+v, want nothing", claims)
}

// LoadClaim reads the events of a claim.
func (f *Fixture) LoadClaim(c store.Claim) ([]outbox.Event, error) {
	loaded, _, err := f.Load(f.Ctx, []store.Range{c.Range()}, 1<<30)
	if err != nil {
		return nil, err
	}
	return loaded[0].Events, nil
}

// MustApply is ApplyClaim that must reach last.
func (f *Fixture) MustApply(c store.Claim, last int64) {
	f.TB.Helper()
	reached, err := f.ApplyClaim(c, last)
	must.Need(f.TB, err == nil && reached == last, "apply to %d: reached %d, %v", last, reached, err)
}

// MustSettle settles results.
func (f *Fixture) MustSettle(w store.Worker, results ...store.Result) store.Settled {
	f.TB.Helper()
	settled, err := f.Settle(f.Ctx, w, results)
	must.Need(f.TB, err == nil, "settle: %v", err)
	return settled.Settled
}

// Failure is a failed attempt with a message.
func Failure(message string) *readmodel.Failure {
	return &readmodel.Failure{Message: message, Fingerprint: outbox.Fingerprint(message)}
}

// Fail makes the head of each named campaign fail once. No others may be due.
func (f *Fixture) Fail(message string, campaigns ...string) {
	f.TB.Helper()
	claims := f.MustClaim(One, 1000)
	must.Need(f.TB, len(claims) == len(campaigns), "claimed %+v, want %q", claims, campaigns)
	for _, c := range claims {
		f.MustSettle(One, store.Result{Claim: c, Applied: c.First - 1, Failure: Failure(message)})
	}
}

// Kill fails the heads of the named campaigns until they are dead. No others may be due.
func (f *Fixture) Kill(campaigns ...string) {
	f.TB.Helper()
	for range f.Retry().Attempts() {
		f.Fail("no such thing", campaigns...)
		f.Clock.Advance(5 * time.Minute)
	}
	for _, id := range campaigns {
		c := f.MustCampaign(id)
		must.Need(f.TB, c.HeadStatus == outbox.Dead, "head of %s is %s, want dead", id, c.HeadStatus)
	}
}

// MustCampaign reads a campaign.
func (f *Fixture) MustCampaign(id string) outbox.Campaign {
	f.TB.Helper()
	return must.Get(f.Campaign(f.Ctx, id)).Or(f.TB)
}

// MustRow reads a row.
func (f *Fixture) MustRow(campaign string, seq int64) outbox.RowDetail {
	f.TB.Helper()
	return must.Get(f.Row(f.Ctx, campaign, seq)).Or(f.TB)
}

// DeadHead creates campaign a with three events, the first of them dead.
func (f *Fixture) DeadHead() { f.AppendN("a", 3); f.Kill("a") }

// Gap creates campaign a with three events without rows, and without any in the counts of its
// row.
func (f *Fixture) Gap() {
	f.AppendN("a", 3)
	f.Exec(`delete from projection_apply_outbox`)
	f.Exec(`update campaigns set pending = 0, head_seq = null, head_status = null, due_at = null`)
}

// CountRows counts the rows with a status.
func (f *Fixture) CountRows(status outbox.Status) int64 {
	f.TB.Helper()
	return f.Number(`select count(*) from projection_apply_outbox where status = $1`, string(status))
}

// Spans are the recorded spans of applied events, by campaign.
func (f *Fixture) Spans() []string {
	f.TB.Helper()
	return Texts(f.TB, f.JournalDB, `select campaign_id || ' ' || first_seq || '-' || last_seq || ' ' || worker from applied_spans order by campaign_id, first_seq`)
}

// UnderKey is an append key of a caller for a request.
func UnderKey(name, key, request string) store.AppendKey {
	return store.AppendKey{By: outbox.Identity{Name: name, Auth: outbox.AuthToken}, Key: key, Request: request}
}

// MustAppendOnce appends events under a key and reports whether the call was a repeat.
func (f *Fixture) MustAppendOnce(key store.AppendKey, events ...outbox.Event) ([]store.Appended, bool) {
	f.TB.Helper()
	result, repeated, err := f.AppendOnce(f.Ctx, store.Append{Events: events}, key)
	if err != nil {
		f.TB.Fatal(err)
	}
	return result, repeated
}

// Ages are the oldest events in a summary.
func (f *Fixture) Ages() (oldest, retryable outbox.Oldest) {
	f.TB.Helper()
	s := must.Get(f.Beside(InMode(f.Mode())).Summary(f.Ctx)).Or(f.TB)
	if s.Oldest != nil {
		oldest = *s.Oldest
	}
	if s.OldestRetryable != nil {
		retryable = *s.OldestRetryable
	}
	if s.Lag.MaxSeconds != oldest.AgeSeconds || s.Lag.RetryableSeconds != retryable.AgeSeconds {
		f.TB.Errorf("lag is %+v, the oldest event %v s old, the oldest retryable %v s", s.Lag, oldest.AgeSeconds, retryable.AgeSeconds)
	}
	return oldest, retryable
}

// MustRequeue requeues a dead row.
func (f *Fixture) MustRequeue(campaign string, seq int64) {
	f.TB.Helper()
	must.Get(f.RequeueRow(f.Ctx, outbox.Command{By: outbox.Operator{Name: "scene"}}, campaign, seq)).Or(f.TB)
}

// WantHistory compares the steps of an event, each as its kind and distinguishing details.
func (f *Fixture) WantHistory(campaign string, seq int64, want ...string) {
	f.TB.Helper()
	h := must.Get(f.EventHistory(f.Ctx, campaign, seq)).Or(f.TB)
	got := []string{}
	for _, s := range h.Steps {
		text := string(s.Kind)
		switch {
		case s.Attempt != nil:
			text += fmt.Sprintf(" %d: %s", s.Attempt.Attempt, s.Attempt.Error)
		case s.AuditEntry != nil:
			text += fmt.Sprintf(" %s by %s", s.AuditEntry.Action, s.AuditEntry.Actor)
		case s.Span != nil:
			text += fmt.Sprintf(" %d-%d by %s", s.Span.FirstSeq, s.Span.LastSeq, s.Span.Worker)
		}
		got = append(got, text)
	}
	must.Same(f.TB, got, want, "the history of", campaign, seq)
}

// Explained is the explanation why a campaign is or is not moving, as on its page.
func (f *Fixture) Explained(id string) outbox.Explanation {
	f.TB.Helper()
	return f.MustCampaign(id).Explain(f.Clock.Now(), outbox.Surroundings{Mode: outbox.ModeOutbox})
}

// Item is an item of a condition: types, separated by spaces, and tags.
func Item(types string, tags ...string) outbox.ConditionItem {
	return outbox.ConditionItem{EventTypes: strings.Fields(types), Tags: Pairs(tags)}
}

// AppendUnless appends the event unless an event after the position matches one of the items.
func (f *Fixture) AppendUnless(e outbox.Event, after int64, items ...outbox.ConditionItem) ([]store.Appended, error) {
	return f.Append(f.Ctx, store.Append{Events: []outbox.Event{e}, Condition: &outbox.AppendCondition{AfterPosition: after, Items: items}})
}
