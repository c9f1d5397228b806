package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// exact fails unless the campaign's row is what a recount of its events and
// rows, past the store, says it must be.
func (f *fixture) exact(id string) {
	f.tb.Helper()
	if problem := f.inexact(id); problem != "" {
		f.tb.Errorf("the row of campaign %s: %s", id, problem)
	}
}

const recount = `
select
  c.high_water_seq = (select coalesce(max(seq), 0) from events e where e.campaign_id = c.campaign_id),
  c.high_water_seq = (select count(*) from events e where e.campaign_id = c.campaign_id),
  c.chain_hash = coalesce((select chain_hash from events e where e.campaign_id = c.campaign_id order by seq desc limit 1), ''),
  c.pending = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'pending'),
  c.processing = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'processing'),
  c.failed = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'failed'),
  c.dead = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'dead'),
  c.head_seq is h.seq,
  c.head_status is h.status,
  c.head_next_attempt_at is h.next_attempt_at,
  c.oldest_enqueued_at is h.enqueued_at
from campaigns c
left join projection_apply_outbox h on h.campaign_id = c.campaign_id
  and h.seq = (select min(seq) from projection_apply_outbox o where o.campaign_id = c.campaign_id)
where c.campaign_id = $1`

var recounted = []string{"high water", "density", "chain hash", "pending", "processing", "failed", "dead", "head", "head's status", "head's next attempt", "oldest"}

func (f *fixture) inexact(id string) string {
	f.tb.Helper()
	right := make([]bool, len(recounted))
	dest := make([]any, len(right))
	for i := range right {
		dest[i] = &right[i]
	}
	if err := f.journal.QueryRow(recount, id).Scan(dest...); err != nil {
		return err.Error()
	}
	for i, name := range recounted {
		if !right[i] {
			return name + " is wrong"
		}
	}
	return f.wrongDue(id)
}

// wrongDue checks due_at against its definition: nothing for a campaign that
// no passing of time makes claimable, the lease's end while one stands, the
// head's next attempt otherwise, or the later moment at which it became ready.
func (f *fixture) wrongDue(id string) string {
	f.tb.Helper()
	var due, next, paused sql.NullInt64
	var status sql.NullString
	var diverged, owner string
	var expiry int64
	err := f.journal.QueryRow(`select due_at, head_next_attempt_at, paused_at, head_status, diverged, lease_owner, lease_expires_at from campaigns where campaign_id = $1`, id).
		Scan(&due, &next, &paused, &status, &diverged, &owner, &expiry)
	now := f.clock.now().UnixMicro()
	idle := diverged != "" || paused.Valid || !next.Valid || status.String == "dead"
	switch {
	case err != nil:
		return err.Error()
	case idle != !due.Valid:
		return fmt.Sprintf("due_at is %v, head %v, paused %v", due, status, paused)
	case !idle && owner != "" && due.Int64 != expiry:
		return fmt.Sprintf("due_at is %d, the lease ends at %d", due.Int64, expiry)
	case !idle && owner == "" && due != next && (due.Int64 < next.Int64 || due.Int64 > now):
		return fmt.Sprintf("due_at is %d, the head's next attempt %d, now %d", due.Int64, next.Int64, now)
	}
	return ""
}

// wave is what one worker holds in a history.
type wave struct {
	worker store.Worker
	claims []store.Claim
}

// history is a random sequence of everything that happens to a store.
type history struct {
	*fixture
	t       *rapid.T
	ids     []string
	held    []wave
	stray   map[string]bool // campaigns in which applied events may have rows that nobody has settled
	applied map[string]int64
	epochs  map[string]int64
}

func (h *history) id() string { return rapid.SampledFrom(h.ids).Draw(h.t, "campaign") }

// acted fails on anything but success and a refusal that is allowed.
func (h *history) acted(err error) {
	if err != nil && !errors.Is(err, outbox.ErrConflict) && !errors.Is(err, outbox.ErrNotFound) {
		h.t.Fatalf("act: %v", err)
	}
}

func (h *history) appends() { h.append(h.id(), rapid.IntRange(1, 5).Draw(h.t, "events")) }

func (h *history) claims() {
	w := rapid.SampledFrom([]store.Worker{one, two}).Draw(h.t, "worker")
	if claims := h.claim(w, rapid.IntRange(1, 12).Draw(h.t, "rows")); len(claims) > 0 {
		h.held = append(h.held, wave{w, claims})
	}
}

// take removes a random wave from those that are held.
func (h *history) take() (wave, bool) {
	if len(h.held) == 0 {
		return wave{}, false
	}
	i := rapid.IntRange(0, len(h.held)-1).Draw(h.t, "wave")
	w := h.held[i]
	h.held = append(h.held[:i:i], h.held[i+1:]...)
	return w, true
}

// works ends a wave the way a worker does: each campaign is applied as far as
// drawn, may fail there, and is settled, unless the worker dies before.
func (h *history) works() {
	w, ok := h.take()
	if !ok {
		return
	}
	dies := rapid.IntRange(0, 3).Draw(h.t, "dies") == 0
	var results []store.Result
	for _, c := range w.claims {
		last := rapid.Int64Range(c.First-1, c.Last).Draw(h.t, "applied")
		reached, err := h.apply(c, last)
		if err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
			h.t.Fatalf("apply: %v", err)
		}
		r := store.Result{Claim: c, Applied: reached}
		if reached < c.Last && err == nil && rapid.Bool().Draw(h.t, "fails") {
			r.Failure = failure("boom")
		}
		results = append(results, r)
	}
	if dies || h.settle(w.worker, results...).Fenced > 0 {
		for _, r := range results {
			h.stray[r.Claim.CampaignID] = true
		}
	}
}

func (h *history) renews() {
	if len(h.held) > 0 {
		w := rapid.SampledFrom(h.held).Draw(h.t, "renewed")
		if err := h.Renew(h.ctx, w.worker, w.claims, lease); err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
			h.t.Fatalf("renew: %v", err)
		}
	}
}

func (h *history) waits() {
	h.clock.advance(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, lease, 6 * time.Minute}).Draw(h.t, "wait"))
}

// operates performs a random act.
func (h *history) operates() {
	id := h.id()
	head := int64(1)
	if c, err := h.Campaign(h.ctx, id); err == nil && c.HeadSeq > 0 {
		head = c.HeadSeq
	}
	var err error
	switch rapid.SampledFrom([]string{"requeue", "many", "retry", "pause", "resume", "replay", "repair"}).Draw(h.t, "act") {
	case "requeue":
		_, err = h.RequeueRow(h.ctx, ana(""), id, head)
	case "many":
		_, err = h.RequeueDead(h.ctx, ana(""), outbox.RequeueFilter{Limit: 2})
	case "retry":
		_, err = h.RetryRow(h.ctx, ana(""), id, head)
	case "pause":
		_, err = h.PauseCampaign(h.ctx, ana(""), id)
	case "resume":
		_, err = h.ResumeCampaign(h.ctx, ana(""), id)
	case "replay":
		// A campaign that is being worked on would be waited for in real time.
		if c, _ := h.Campaign(h.ctx, id); c.Lease == nil || !c.Lease.ExpiresAt.After(h.clock.now()) {
			_, err = h.ReplayCampaign(h.ctx, ana(""), id)
		}
	case "repair":
		_, err = h.RepairGaps(h.ctx, ana(""))
	}
	h.acted(err)
}

// loses deletes rows past the store and has the gap repaired at once. A
// campaign under a lease is spared: its worker repairs what it finds.
func (h *history) loses() {
	id := h.id()
	c, err := h.Campaign(h.ctx, id)
	if err != nil || c.Lease != nil {
		return
	}
	h.raw(`delete from projection_apply_outbox where campaign_id = $1 and seq % 3 = $2`, id, rapid.IntRange(0, 2).Draw(h.t, "which"))
	if _, err := h.ReconcileCampaign(h.ctx, id); err != nil {
		h.t.Fatalf("repair: %v", err)
	}
}

// holds checks everything that must be true after every step.
func (h *history) holds() {
	for _, id := range h.ids {
		c, err := h.Campaign(h.ctx, id)
		if errors.Is(err, outbox.ErrNotFound) {
			continue
		}
		if problem := h.inexact(id); problem != "" {
			h.t.Fatalf("the row of campaign %s: %s", id, problem)
		}
		epoch := h.number(`select lease_epoch from campaigns where campaign_id = $1`, id)
		if c.AppliedSeq < h.applied[id] || epoch < h.epochs[id] {
			h.t.Fatalf("campaign %s went back: applied %d after %d, epoch %d after %d", id, c.AppliedSeq, h.applied[id], epoch, h.epochs[id])
		}
		h.applied[id], h.epochs[id] = c.AppliedSeq, epoch
		if h.stray[id] && h.number(`select count(*) from projection_apply_outbox where campaign_id = $1 and seq <= $2`, id, c.AppliedSeq) == 0 {
			h.stray[id] = false
		}
	}
	report, err := h.Check(h.ctx, func(int64, int64) {})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, v := range report.Violations {
		// After a worker died between its two databases, rows of applied
		// events wait for the next one to come by.
		if v.Invariant != "applied_and_owed" || !h.stray[v.CampaignID] {
			h.t.Fatalf("check: %+v", v)
		}
	}
}

func TestCampaignRow_staysExactWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := open(t, maxAttempts(3))
		defer f.release()
		h := &history{fixture: f, t: rt, ids: []string{"a", "b", "ü'%"}, stray: map[string]bool{}, applied: map[string]int64{}, epochs: map[string]int64{}}
		steps := map[string]func(){
			"append": h.appends, "claim": h.claims, "claim again": h.claims, "work": h.works, "work again": h.works, "renew": h.renews,
			"wait": h.waits, "operate": h.operates, "operate again": h.operates, "lose": h.loses,
		}
		names := []string{"append", "claim", "claim again", "lose", "operate", "operate again", "renew", "wait", "work", "work again"}
		h.appends()
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			steps[rapid.SampledFrom(names).Draw(rt, "step")]()
			h.holds()
		}
		h.drainsAfterAll()
	})
}

// drainsAfterAll: once faults have stopped and operators have released what
// they held, every campaign drains.
func (h *history) drainsAfterAll() {
	for _, id := range h.ids {
		_, err := h.ResumeCampaign(h.ctx, ana(""), id)
		h.acted(err)
	}
	for range 20 {
		_, err := h.RequeueDead(h.ctx, ana(""), outbox.RequeueFilter{})
		h.acted(err)
		h.clock.advance(6 * time.Minute)
		h.drain()
	}
	if n := h.number(`select count(*) from projection_apply_outbox`); n != 0 {
		h.t.Fatalf("%d rows are left though nothing fails any more", n)
	}
	clear(h.stray)
	h.holds()
}
