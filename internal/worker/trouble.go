package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// stalledAfter is how long applying must have failed without one successful wave for the worker
// to be stalled.
const stalledAfter = 10 * time.Second

// healthState is what prevents a worker from applying: campaigns excluded for a while because
// of database errors, and faults that concern everything. The zero value is ready for use.
type healthState struct {
	mu       sync.Mutex
	failing  time.Time // since when applying fails; zero when it does not
	cause    string    // the latest error
	damage   string    // unreadable data found by the last reconcile; empty when none
	waiting  string    // why the first reconcile failed; empty when it did not
	excluded map[string]exclusion
}

// exclusion is a campaign whose rows cannot be claimed or settled because of a database error.
type exclusion struct {
	until time.Time
	times int
	cause string
}

// record records the result of a pass.
func (t *healthState) record(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.failing = time.Time{}
	case t.failing.IsZero():
		t.failing = time.Now()
	}
	if err != nil {
		t.cause = err.Error()
	}
}

// exclude excludes a campaign until its next attempt.
func (t *healthState) exclude(id string, cause error, retry event.Retry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.excluded == nil {
		t.excluded = make(map[string]exclusion)
	}
	times := t.excluded[id].times + 1
	t.excluded[id] = exclusion{until: time.Now().Add(retry.Delay(times)), times: times, cause: cause.Error()}
}

// damaged records which part of a database is unreadable; nil means none.
func (t *healthState) damaged(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.damage = ""
	if err != nil {
		t.damage, _, _ = strings.Cut(err.Error(), "\n") // the first of many
	}
}

// waits records why runs and operations still wait; nil means that they do not.
func (t *healthState) waits(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = ""
	if err != nil {
		t.waiting = err.Error()
	}
}

// include clears the exclusions of campaigns.
func (t *healthState) include(claims []outbox.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.excluded) == 0 {
		return
	}
	for _, c := range claims {
		delete(t.excluded, c.CampaignID)
	}
}

// except is the currently excluded campaigns; nil when there are none.
func (t *healthState) except() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids map[string]bool
	for id, x := range t.excluded {
		if time.Now().Before(x.until) {
			if ids == nil {
				ids = make(map[string]bool)
			}
			ids[id] = true
		}
	}
	return ids
}

// sentence describes what is wrong; empty when nothing is. stalled is true when nothing at all
// is applied.
func (t *healthState) sentence() (text string, stalled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.failing.IsZero() && time.Since(t.failing) >= stalledAfter {
		return fmt.Sprintf("nothing has been applied since %s: %s", t.failing.UTC().Format(time.RFC3339), t.cause), true
	}
	if len(t.excluded) == 0 && t.damage != "" {
		return "part of a database cannot be read; outboxweb check lists what is affected: " + t.damage, false
	}
	if len(t.excluded) == 0 && t.waiting != "" {
		return "runs and operations wait for the first reconcile, which fails: " + t.waiting, false
	}
	if len(t.excluded) == 0 {
		return "", false
	}
	id := slices.Min(slices.Collect(maps.Keys(t.excluded)))
	text = fmt.Sprintf("the database failed for campaign %q (%s): %s", id, event.Count(int64(t.excluded[id].times), "attempt", "attempts"), t.excluded[id].cause)
	if more := len(t.excluded) - 1; more > 0 {
		text += fmt.Sprintf("; and for %d more", more)
	}
	return text, false
}

// atFault reports whether an error in one campaign's work is due to that campaign, since the
// database as a whole works.
func (w *Worker) atFault(ctx context.Context, err error) bool {
	return err != nil && !errors.Is(err, event.ErrBusy) && !errors.Is(err, event.ErrFull) && !sqldb.Outage(err) && w.Store.Probe(ctx) == nil
}

// workOneByOne works on each claim separately after all of them together have failed, so that
// only the one at fault fails.
func (w *Worker) workOneByOne(ctx context.Context, claims []outbox.Claim) (all []*part, first error) {
	for _, c := range claims {
		wave, err := w.Apply(ctx, []outbox.Claim{c})
		if w.atFault(context.WithoutCancel(ctx), err) {
			wave.parts[0].result = outbox.Result{Claim: c, Applied: c.First - 1, Failure: w.Failure(err)}
			err = nil
		}
		all = append(all, wave.parts...)
		if first == nil {
			first = err
		}
	}
	return all, first
}

// settleOneByOne settles each part separately after all of them together have failed. The lease
// of one that cannot be settled expires.
func (w *Worker) settleOneByOne(ctx context.Context, parts []*part) (first error) {
	for _, p := range parts {
		err := w.settle(ctx, []*part{p})
		if w.atFault(context.WithoutCancel(ctx), err) {
			w.Logger.Error("campaign cannot be settled; backing off", "campaign", p.claim.CampaignID, "error", err)
			w.troubles.exclude(p.claim.CampaignID, err, w.Store.Retry())
			err = nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}
