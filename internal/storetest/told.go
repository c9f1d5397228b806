package storetest

import (
	"fmt"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Told is a campaign in words: what is applied, its head, its rows by status, who holds it, and what stops it.
func Told(c outbox.Campaign) string {
	text := fmt.Sprintf("applied %d of %d", c.AppliedSeq, c.HighWaterSeq)
	if c.HeadSeq > 0 {
		text += fmt.Sprintf(", head %d %s", c.HeadSeq, c.HeadStatus)
	}
	for _, n := range []struct {
		rows   int64
		status outbox.Status
	}{{c.Counts.Pending, outbox.Pending}, {c.Counts.Processing, outbox.Processing}, {c.Counts.Failed, outbox.Failed}, {c.Counts.Dead, outbox.Dead}, {c.Skips, "skipped"}} {
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
	f.TB.Helper()
	must.Equal(f.TB, Told(f.MustCampaign(campaign)), want, "campaign", campaign, "want")
}

// RowIs fails unless a row has this status, number of failed attempts, and time to its next attempt, as in "failed after 3, due in 4s".
func (f *Fixture) RowIs(campaign string, seq int64, want string) {
	f.TB.Helper()
	r := f.MustRow(campaign, seq).Row
	must.Equal(f.TB, fmt.Sprintf("%s after %d, due in %s", r.Status, r.AttemptCount, r.NextAttemptAt.Sub(f.Clock.Now())), want, "row", campaign, seq)
}

// ToldClaim is a claim in words: its events, its epoch, and what is unusual about it.
func ToldClaim(c store.Claim) string {
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

// Claims is ClaimOne of a claim as told.
func (f *Fixture) Claims(w store.Worker, rows int, want string) store.Claim {
	f.TB.Helper()
	c := f.ClaimOne(w, rows)
	got := ToldClaim(c)
	must.Need(f.TB, got == want, "claimed %s, want %s", got, want)
	return c
}

// Works applies the events of a claim up to last, and settles it.
func (f *Fixture) Works(w store.Worker, c store.Claim, last int64) store.Settled {
	f.TB.Helper()
	if last >= c.First {
		f.MustApply(c, last)
	}
	return f.MustSettle(w, store.Result{Claim: c, Applied: last})
}

// FailsAfter applies the events of a claim up to last, and settles it with a failure of the next.
func (f *Fixture) FailsAfter(w store.Worker, c store.Claim, last int64, message string) store.Settled {
	f.TB.Helper()
	if last >= c.First {
		f.MustApply(c, last)
	}
	return f.MustSettle(w, store.Result{Claim: c, Applied: last, Failure: Failure(message)})
}

// No is the error of a call whose result does not matter.
func No[T any](_ T, err error) error { return err }
