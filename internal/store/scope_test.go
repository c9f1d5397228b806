package store_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

func scopeOf(t *testing.T, patterns ...string) outbox.Scope {
	return must.Get(outbox.ParseScope(patterns)).Or(t)
}

func TestClaim_takesWhatTheWorkerServesAlone(t *testing.T) {
	t.Parallel()
	f := open(t)
	// The others have been due for longer and fill a reading step.
	for _, id := range []string{"other-1", "other-2", "other-3", "tria", "Trial-1", "triäl-1"} {
		f.AppendN(id, 1)
		f.Clock.Advance(1)
	}
	two := two
	two.Serves = scopeOf(t, "one", "triäl-*", "none")
	must.Equal(t, f.ClaimOne(two, 1000).CampaignID, "triäl-1", "claimed")
	f.NoClaim(two)
	_, due, err := f.UntilDue(f.Ctx, scopeOf(t, "one", "none-*"))
	must.Hold(t, !due && err == nil, "a campaign that is not served is due: %v", err)
	f.AppendN("one", 1)
	wait, due, err := f.UntilDue(f.Ctx, two.Serves)
	must.Hold(t, due && wait == 0 && err == nil, "due in %s: %v, %v", wait, due, err)
	must.Equal(t, f.ClaimOne(two, 1000).CampaignID, "one", "claimed")
	f.Sound()
}

func TestClaimSuspect_takesWhatTheWorkerServesAlone(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	for range 2 {
		f.ClaimOne(one, 10)
		f.Clock.Advance(2 * lease)
	}
	claims, err := f.Claim(f.Ctx, one, store.ClaimLimits{Rows: 1, Lease: lease})
	must.Need(t, err == nil && len(claims) <= 0, "a suspect is claimed beside others: %+v (%v)", claims, err)
	for patterns, want := range map[string]int{"b": 0, "b*": 0, "a": 1} {
		w := store.Worker{ID: "w", Serves: scopeOf(t, patterns)}
		due, err := f.SuspectDue(f.Ctx, w.Serves)
		must.Hold(t, err == nil && due == (want == 1), "%s: a suspect is due: %v, %v", patterns, due, err)
	}
	w := store.Worker{ID: "w", Serves: scopeOf(t, "b")}
	must.Equal(t, len(must.Get(f.ClaimSuspect(f.Ctx, w, lease)).Or(t)), 0, "claimed", ")")
	w.Serves = scopeOf(t, "a")
	must.Equal(t, len(must.Get(f.ClaimSuspect(f.Ctx, w, lease)).Or(t)), 1, "claimed", ")")
}

func TestSQLitePlans_claimingAPartOfTheCampaignsScansNoTable(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	for _, patterns := range [][]string{{"b"}, {"b*"}, {"b", "c*"}} {
		w := store.Worker{ID: "w", Serves: scopeOf(t, patterns...)}
		f.NoClaim(w)
		f.must(f.SuspectDue(f.Ctx, w.Serves))
	}
	found := 0
	for _, s := range f.Statements() {
		if !strings.Contains(s.Query, "due_at") || !strings.Contains(s.Query, "campaign_id = $") && !strings.Contains(s.Query, "substr(campaign_id") {
			continue
		}
		found++
		for _, step := range plan(t, f.JournalDB, s.Query) {
			must.Hold(t, !strings.HasPrefix(step, "SCAN"), "%s\n\tfor %s", step, s.Query)
		}
	}
	must.Hold(t, found >= 6, "%d statements were seen", found)
}
