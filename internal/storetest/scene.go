package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// MustPause pauses a campaign.
func (f *Fixture) MustPause(campaign string) {
	must.Get(f.PauseCampaign(f.Ctx, operator.Command{By: operator.Operator{Name: "scene"}}, campaign)).Or(f.TB)
}

// MustResume resumes a campaign.
func (f *Fixture) MustResume(campaign string) {
	must.Get(f.ResumeCampaign(f.Ctx, operator.Command{By: operator.Operator{Name: "scene"}}, campaign)).Or(f.TB)
}

// Killed creates n campaigns of three events each whose first is dead.
func (f *Fixture) Killed(name string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%02d", name, i)
		f.AppendN(ids[i], 3)
	}
	f.Kill(ids...)
	return ids
}

// MustSample samples the store's current state. It drops cached reads first, like a newly started process.
func (f *Fixture) MustSample() { must.OK(f.TB, f.Beside().Sample(f.Ctx)) }

// FreshInstances lists the instances as seen by a process without a cached list.
func (f *Fixture) FreshInstances() []campaign.InstanceState {
	return must.Get(f.Beside().Instances(f.Ctx)).Or(f.TB)
}

// AllCampaigns reads every page of a list of campaigns.
func (f *Fixture) AllCampaigns(filter campaign.CampaignFilter) []campaign.Campaign {
	var all []campaign.Campaign
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
func Tagged(campaign, eventType string, tags ...string) event.Event {
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

// AppendN appends n events to each of the campaigns, which are separated by spaces, and returns their positions.
func (f *Fixture) AppendN(campaigns string, n int) (all []store.Appended) {
	for campaign := range strings.FieldsSeq(campaigns) {
		all = append(all, f.MustAppend(slices.Repeat([]event.Event{Event(campaign, "counted")}, n)...)...)
	}
	return all
}

// One and Two are two workers.
var (
	One = outbox.Worker{ID: "worker-1", Build: "v1"}
	Two = outbox.Worker{ID: "worker-2", Build: "v2"}
)

// ClaimOne claims the one campaign that must be due.
func (f *Fixture) ClaimOne(w outbox.Worker, rows int) outbox.Claim {
	claims := f.MustClaim(w, rows)
	must.Need(f.TB, len(claims) == 1, "claimed %+v, want one campaign", claims)
	return claims[0]
}

// NoClaim fails when anything is due.
func (f *Fixture) NoClaim(w outbox.Worker) {
	claims := f.MustClaim(w, 1000)
	must.Need(f.TB, len(claims) == 0, "claimed %+v, want nothing", claims)
}

// LoadClaim reads the events of a claim.
func (f *Fixture) LoadClaim(c outbox.Claim) ([]event.Event, error) {
	loaded, _, err := f.Load(f.Ctx, []store.Range{c.Range()}, 1<<30)
	if err != nil {
		return nil, err
	}
	return loaded[0].Events, nil
}

// MustApply is ApplyClaim that must reach last.
func (f *Fixture) MustApply(c outbox.Claim, last int64) {
	reached, err := f.ApplyClaim(c, last)
	must.Need(f.TB, err == nil && reached == last, "apply to %d: reached %d, %v", last, reached, err)
}

// MustSettle settles results.
func (f *Fixture) MustSettle(w outbox.Worker, results ...outbox.Result) outbox.Settled {
	return must.Get(f.Settle(f.Ctx, w, results)).Or(f.TB).Settled
}

// Failure is a failed attempt with a message.
func Failure(message string) *readmodel.Failure {
	return &readmodel.Failure{Message: message, Fingerprint: event.Fingerprint(message)}
}

// Fail makes the head of each named campaign fail once. No others may be due.
func (f *Fixture) Fail(message string, campaigns ...string) {
	claims := f.MustClaim(One, 1000)
	must.Need(f.TB, len(claims) == len(campaigns), "claimed %+v, want %q", claims, campaigns)
	for _, c := range claims {
		f.MustSettle(One, outbox.Result{Claim: c, Applied: c.First - 1, Failure: Failure(message)})
	}
}

// Kill fails the heads of the named campaigns until they are dead. No others may be due.
func (f *Fixture) Kill(campaigns ...string) {
	for range f.Retry().Attempts() {
		f.Fail("no such thing", campaigns...)
		f.Clock.Advance(5 * time.Minute)
	}
	for _, id := range campaigns {
		c := f.MustCampaign(id)
		must.Need(f.TB, c.HeadStatus == event.Dead, "head of %s is %s, want dead", id, c.HeadStatus)
	}
}

// Applied appends n events to each of the campaigns, and processes everything that is due.
func (f *Fixture) Applied(campaigns string, n int) { f.AppendN(campaigns, n); f.Drain() }

// Dies appends n events to a campaign, and makes its head dead.
func (f *Fixture) Dies(campaign string, n int) { f.AppendN(campaign, n); f.Kill(campaign) }

// Failing appends n events to a campaign, and makes its head fail once.
func (f *Fixture) Failing(message, campaign string, n int) {
	f.AppendN(campaign, n)
	f.Fail(message, campaign)
}

// Halted appends n events to a campaign, and pauses it.
func (f *Fixture) Halted(campaign string, n int) { f.AppendN(campaign, n); f.MustPause(campaign) }

// Sampled appends n events to a campaign, and samples.
func (f *Fixture) Sampled(campaign string, n int) { f.AppendN(campaign, n); f.MustSample() }

// DrainsSoundly is Drain that leaves nothing for a check to find.
func (f *Fixture) DrainsSoundly() { f.Drain(); f.Sound() }

// MustCampaign reads a campaign.
func (f *Fixture) MustCampaign(id string) campaign.Campaign {
	return must.Get(f.Campaign(f.Ctx, id)).Or(f.TB)
}

// MustRow reads a row.
func (f *Fixture) MustRow(campaign string, seq int64) campaign.RowDetail {
	return must.Get(f.Row(f.Ctx, campaign, seq)).Or(f.TB)
}

// DeadHead creates campaign a with three events, the first of them dead.
func (f *Fixture) DeadHead() { f.Dies("a", 3) }

// Gap creates campaign a with three events without rows, and without any in the counts of its row.
func (f *Fixture) Gap() {
	f.AppendN("a", 3)
	f.Exec(`delete from projection_apply_outbox`)
	f.Exec(`update campaigns set pending = 0, head_seq = null, head_status = null, due_at = null`)
}

// Spans are the recorded spans of applied events, by campaign.
func (f *Fixture) Spans() []string {
	return Texts(f.TB, f.JournalDB, `select campaign_id || ' ' || first_seq || '-' || last_seq || ' ' || worker from applied_spans order by campaign_id, first_seq`)
}

// UnderKey is an append key of a caller for a request.
func UnderKey(name, key, request string) store.AppendKey {
	return store.AppendKey{By: operator.Identity{Name: name, Auth: operator.AuthToken}, Key: key, Request: request}
}

// MustAppendOnce appends events under a key and reports whether the call was a repeat.
func (f *Fixture) MustAppendOnce(key store.AppendKey, events ...event.Event) ([]store.Appended, bool) {
	result, repeated, err := f.AppendOnce(f.Ctx, store.Append{Events: events}, key)
	must.OK(f.TB, err)
	return result, repeated
}

// Ages are the oldest events in a summary.
func (f *Fixture) Ages() (oldest, retryable campaign.Oldest) {
	s := must.Get(f.Beside(InMode(f.Mode())).Summary(f.Ctx)).Or(f.TB)
	if s.Oldest != nil {
		oldest = *s.Oldest
	}
	if s.OldestRetryable != nil {
		retryable = *s.OldestRetryable
	}
	must.Hold(f.TB, s.Lag.MaxSeconds == oldest.AgeSeconds && s.Lag.RetryableSeconds == retryable.AgeSeconds,
		"lag is %+v, the oldest event %v s old, the oldest retryable %v s", s.Lag, oldest.AgeSeconds, retryable.AgeSeconds)
	return oldest, retryable
}

// MustRequeue requeues a dead row.
func (f *Fixture) MustRequeue(campaign string, seq int64) {
	must.Get(f.RequeueRow(f.Ctx, operator.Command{By: operator.Operator{Name: "scene"}}, campaign, seq)).Or(f.TB)
}

// WantHistory compares the steps of an event, each as its kind and distinguishing details.
func (f *Fixture) WantHistory(campaign string, seq int64, want ...string) {
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
func (f *Fixture) Explained(id string) campaign.Explanation {
	return f.MustCampaign(id).Explain(f.Clock.Now(), campaign.Surroundings{Mode: campaign.ModeOutbox})
}

// Item is an item of a condition: types, separated by spaces, and tags.
func Item(types string, tags ...string) event.ConditionItem {
	return event.ConditionItem{EventTypes: strings.Fields(types), Tags: Pairs(tags)}
}

// AppendUnless appends the event unless an event after the position matches one of the items.
func (f *Fixture) AppendUnless(e event.Event, after int64, items ...event.ConditionItem) ([]store.Appended, error) {
	return f.Append(f.Ctx, store.Append{Events: []event.Event{e}, Condition: &event.AppendCondition{AfterPosition: after, Items: items}})
}

// ToSkip is a command with the reason and the confirmation of a skip.
func ToSkip(o operator.Command, campaign string, seq int64) operator.Command {
	if o.Reason == "" {
		o.Reason = "it can never be applied"
	}
	o.Confirm = operator.ActionSkip.Phrase(operator.Reach{Skipped: event.RowKey{CampaignID: campaign, Seq: seq}})
	return o
}

// MustSkip skips an event.
func (f *Fixture) MustSkip(campaign string, seq int64) {
	must.Get(f.SkipEvent(f.Ctx, ToSkip(operator.Command{By: operator.Operator{Name: "scene"}}, campaign, seq), campaign, seq)).Or(f.TB)
}

// DieAt appends events to campaign a, applies those before seq and makes that one dead.
func (f *Fixture) DieAt(events int, seq int64) {
	f.AppendN("a", events)
	if seq > 1 {
		c := f.ClaimOne(One, int(seq-1))
		f.MustApply(c, seq-1)
		f.MustSettle(One, outbox.Result{Claim: c, Applied: seq - 1})
	}
	f.Kill("a")
}

// PassOver advances the watermark of campaign a over its head, and settles.
func (f *Fixture) PassOver() {
	c := f.ClaimOne(One, 1)
	f.MustApply(c, c.Last)
	f.MustSettle(One, outbox.Result{Claim: c, Applied: c.Last})
}

// SkipTwo makes the second and the third of four events of campaign a dead, one after the other, and skips each.
func (f *Fixture) SkipTwo() {
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	f.PassOver()
	f.Kill("a")
	f.MustSkip("a", 3)
	f.PassOver()
}

// Marks lists the skip marks of the projections: campaign, seq and skip.
func (f *Fixture) Marks() []string {
	return Texts(f.TB, f.ProjectionsDB, `select campaign_id || ' ' || seq || ' ' || skip_id from watermark_skips order by campaign_id, seq`)
}

// WantMarks fails unless the projections have the wanted skip marks.
func (f *Fixture) WantMarks(want ...string) { must.Equal(f.TB, f.Marks(), want, "marks") }

// SkipLedger is the skips of a campaign, newest first.
func (f *Fixture) SkipLedger(campaign string) []event.Skip {
	return must.Get(f.Skips(f.Ctx, event.SkipFilter{CampaignID: campaign})).Or(f.TB).Items
}

// Told is a campaign in words: what is applied, its head, its rows by status, who holds it, and what stops it.
func Told(c campaign.Campaign) string {
	text := fmt.Sprintf("applied %d of %d", c.AppliedSeq, c.HighWaterSeq)
	if c.HeadSeq > 0 {
		text += fmt.Sprintf(", head %d %s", c.HeadSeq, c.HeadStatus)
	}
	for _, n := range []struct {
		rows   int64
		status event.Status
	}{{c.Counts.Pending, event.Pending}, {c.Counts.Processing, event.Processing}, {c.Counts.Failed, event.Failed}, {c.Counts.Dead, event.Dead}, {c.Skips, "skipped"}} {
		if n.rows != 0 {
			text += fmt.Sprintf(", %d %s", n.rows, n.status)
		}
	}
	if c.Lease != nil {
		text += fmt.Sprintf(", held by %s under %d", c.Lease.Owner, c.Lease.Epoch)
	}
	if c.Paused != nil {
		text += ", paused by " + c.Paused.By
	}
	if c.Diverged != "" {
		text += ", diverged: " + c.Diverged
	}
	return text
}

// Is fails unless a campaign is as told.
func (f *Fixture) Is(campaign, want string) {
	must.Equal(f.TB, Told(f.MustCampaign(campaign)), want, "campaign", campaign, "want")
}

// Works applies the events of a claim up to last, and settles it.
func (f *Fixture) Works(w outbox.Worker, c outbox.Claim, last int64) outbox.Settled {
	if last >= c.First {
		f.MustApply(c, last)
	}
	return f.MustSettle(w, outbox.Result{Claim: c, Applied: last})
}

// No is the error of a call whose result does not matter.
func No[T any](_ T, err error) error { return err }

// RowIs fails unless a row has this status, number of failed attempts, and time to its next attempt, as in "failed after 3, due in 4s".
func (f *Fixture) RowIs(campaign string, seq int64, want string) {
	r := f.MustRow(campaign, seq).Row
	must.Equal(f.TB, fmt.Sprintf("%s after %d, due in %s", r.Status, r.AttemptCount, r.NextAttemptAt.Sub(f.Clock.Now())), want, "row", campaign, seq)
}

// FailsAfter applies the events of a claim up to last, and settles it with a failure of the next.
func (f *Fixture) FailsAfter(w outbox.Worker, c outbox.Claim, last int64, message string) outbox.Settled {
	if last >= c.First {
		f.MustApply(c, last)
	}
	return f.MustSettle(w, outbox.Result{Claim: c, Applied: last, Failure: Failure(message)})
}

// Claims is ClaimOne of a claim as told.
func (f *Fixture) Claims(w outbox.Worker, rows int, want string) outbox.Claim {
	c := f.ClaimOne(w, rows)
	must.Equal(f.TB, ToldClaim(c), want, "claimed")
	return c
}

// ToldClaim is a claim in words: its events, its epoch, and what is unusual about it.
func ToldClaim(c outbox.Claim) string {
	text := fmt.Sprintf("%s %d-%d under %d", c.CampaignID, c.First, c.Last, c.Epoch)
	if c.Attempts > 0 {
		text += fmt.Sprintf(", after %d", c.Attempts)
	}
	for _, unusual := range []struct {
		word string
		is   bool
	}{{"counted", c.Counted}, {"bare", c.Bare}, {"with skips", !c.Unskipped}} {
		if unusual.is {
			text += ", " + unusual.word
		}
	}
	return text
}

// CountRows counts the rows with a status.
func (f *Fixture) CountRows(status event.Status) int64 {
	return f.Number(`select count(*) from projection_apply_outbox where status = $1`, string(status))
}

// Crash claims everything due and lets the lease expire.
func (f *Fixture) Crash(w outbox.Worker, rows int) outbox.Claim {
	c := f.ClaimOne(w, rows)
	f.Clock.Advance(Lease)
	return c
}

// MustClaimInline claims a campaign for the request path.
func (f *Fixture) MustClaimInline(w outbox.Worker, campaignID string) outbox.Claim {
	c, hold, err := f.ClaimInline(f.Ctx, w, campaignID, outbox.ClaimLimits{Rows: 10, Lease: Lease})
	must.Need(f.TB, err == nil && hold == campaign.BlockerNone, "the request path claimed %+v: %s, %v", c, hold, err)
	return c
}

// SettleAs claims and applies an event, which must be the one that is due.
func (f *Fixture) SettleAs(w outbox.Worker, campaign string, seq int64) {
	c := f.ClaimOne(w, 1)
	must.Need(f.TB, c.CampaignID == campaign && c.First == seq, "claimed %+v, want %s seq %d", c, campaign, seq)
	f.MustSettle(w, outbox.Result{Claim: c, Applied: seq})
}

// ScopeOf is the scope of patterns.
func ScopeOf(t testing.TB, patterns ...string) campaign.Scope {
	return must.Get(campaign.ParseScope(patterns)).Or(t)
}

// InstanceIn is an instance in a condition at noon, with as many leased campaigns as ends, each expiring after that time.
func InstanceIn(noon time.Time, c campaign.Condition, ends ...time.Duration) campaign.InstanceState {
	i := campaign.InstanceState{ID: "i", Host: "h", PID: 7, Version: "v1", Mode: campaign.ModeOutbox, StartedAt: noon, LastSeen: noon}
	hour := noon.Add(-time.Hour)
	switch c {
	case campaign.InstanceIdle:
		i.LastSeen = hour
	case campaign.InstanceSilent:
		i.LastSeen, i.BeatEvery = hour, time.Second
	case campaign.InstanceStopped:
		i.StoppedAt = &hour
	}
	for _, end := range ends {
		i.Leases.Add(campaign.HeldLease{CampaignID: "c", HeadSeq: 3, Rows: 5, Epoch: 2, ExpiresAt: noon.Add(end)})
	}
	return i
}
