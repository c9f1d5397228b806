package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// In inline mode an append is answered after its events were applied. Events that could not be
// applied are queued as in any mode: pages show the row, the worker retries it and operators act on
// it.
func TestModes_inline(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	flags := append([]string{"--mode", "inline_apply_only"}, writeProjections(t, historyProjections)...)
	s := start(t, d, append([]string{"--max-attempts", "2"}, flags...)...)
	const path = "/api/v1/campaigns/c-1/events"
	for n := int64(1); n <= 50; n++ {
		s.post(t, http.StatusCreated, path, event{EventType: "one.made", Payload: map[string]any{"n": 1}})
		if total := scalar[int64](t, d.projections(), "select total from tally where campaign_id = 'c-1'"); total != n {
			t.Fatalf("event %d was answered while the read model had %d", n, total)
		}
	}
	if n := scalar[int64](t, d.journal(), "select count(*) from projection_apply_outbox"); n != 0 {
		t.Errorf("%d rows were enqueued", n)
	}

	var owed campaign
	var failed struct {
		Seq        int64
		ApplyError string `json:"apply_error"`
	}
	s.post(t, http.StatusCreated, path, event{EventType: "one.made", Payload: map[string]any{}}).decode(t, &failed)
	if failed.Seq != 51 || !strings.Contains(failed.ApplyError, "event 51") {
		t.Errorf("an event that cannot be applied is answered with %+v", failed)
	}
	s.get(t, "/api/v1/campaigns/c-1", &owed)
	if owed.State != "failing" && owed.State != "blocked" || owed.AppliedSeq != 50 {
		t.Errorf("the campaign is %+v, want event 51 failed", owed)
	}
	eventually(t, patience, "the overview says that an event is owed", func() (bool, string) { // a read result is cached for a moment
		page := do(t, s, http.MethodGet, "/", nil)
		return !strings.Contains(string(page.body), "is current"), string(page.body)
	})
	eventually(t, patience, "the worker has tried event 51 again", func() (bool, string) {
		c := campaignState(t, s, "c-1")
		return c.State == "blocked", c.Why
	})
	s.post(t, http.StatusCreated, path, event{EventType: "one.made", Payload: map[string]any{"n": 1}}).decode(t, &failed)
	if failed.Seq != 52 || !strings.Contains(failed.ApplyError, "Event 51") {
		t.Errorf("an event behind one that is dead is answered with %+v", failed)
	}
	s.post(t, http.StatusOK, "/api/v1/rows/c-1/51/skip", map[string]any{"reason": "sent by mistake", "confirm": "skip c-1 51"})
	s.get(t, "/api/v1/campaigns/c-1?min_seq=52&timeout=30s", &owed)

	out := mustCommand(t, d, strings.NewReader(`{"campaign_id": "c-2", "event_type": "one.made", "payload": {"n": 5}}`), append([]string{"append", "-"}, flags...)...)
	if total := scalar[int64](t, d.projections(), "select total from tally where campaign_id = 'c-2'"); total != 5 {
		t.Errorf("the command line appended without applying: %s", out)
	}
	lines := `{"campaign_id": "c-3", "event_type": "one.made", "payload": {"n": 5}}
{"campaign_id": "c-3", "event_type": "one.made", "payload": {}}
{"campaign_id": "c-3", "event_type": "one.made", "payload": {"n": 5}}`
	r := command(t, d, strings.NewReader(lines), append([]string{"append", "--batch", "1", "--json", "-"}, flags...)...)
	if r.code != 1 || !strings.Contains(r.stdout, `"c-3"`) || strings.Count(r.stderr, "c-3") != 1 {
		t.Errorf("the command line says of an event that cannot be applied: %+v", r)
	}
	eventually(t, patience, "the worker has tried the second event again", func() (bool, string) {
		c := campaignState(t, s, "c-3")
		return c.State == "blocked" && c.AppliedSeq == 1, c.Why
	})
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with exit code %d", code)
	}
	verifyNothingHeld(t, d)
	checkClean(t, d, flags...)
}

// Events that a killed server had appended but not applied are applied by the next one.
func TestModes_inlineKilled(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	serve := append([]string{"--mode", "inline_apply_only", "--lease", "150ms"}, projections...)
	l := startLoad(t, 8, 12)
	for round := range 6 {
		s := start(t, d, serve...)
		l.point(s)
		wait(time.Duration(100+round*37) * time.Millisecond)
		s.kill()
	}
	s := start(t, d, serve...)
	l.point(s)
	l.awaitProgress(t, 50)
	l.finish(t)
	s.awaitSummary(t, "everything is applied", func(sum summary) bool { return sum.Lag.Events == 0 && sum.Campaigns.Leased == 0 })
	if code := s.stop(t); code != 0 {
		t.Errorf("the last server ended with exit code %d", code)
	}
	l.verifyJournal(t, d)
	verifyApplied(t, d)
	verifyNothingHeld(t, d)
	checkClean(t, d, append([]string{"--mode", "inline_apply_only"}, projections...)...)
}

// In shadow mode the worker rehearses and changes nothing; the same files then continue in the
// usual mode.
func TestModes_shadow(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	serve := append([]string{"--max-attempts", "1", "--poll-interval", "20ms"}, projections...)
	s := start(t, d, append([]string{"--mode", "shadow_only"}, serve...)...)
	good, bad := event{EventType: "one.made", Payload: map[string]any{"n": 1}}, event{EventType: "one.made", Payload: map[string]any{}}
	s.post(t, http.StatusCreated, "/api/v1/campaigns/good/events", map[string]any{"events": []event{good, good, good}})
	s.post(t, http.StatusCreated, "/api/v1/campaigns/bad/events", map[string]any{"events": []event{good, bad, good}})
	eventually(t, patience, "both campaigns are rehearsed", func() (bool, string) {
		n := scalar[int64](t, d.journal(), "select count(*) from rehearsals where rehearsed_seq = 3 and campaign_id = 'good' or failed_seq = 2 and campaign_id = 'bad'")
		return n == 2, fmt.Sprint(n, " are")
	})
	for query, want := range map[string]int64{
		"select count(*) from projection_apply_outbox where status = 'pending' and attempt_count = 0": 6,
		"select count(*) from projection_apply_outbox":                                                6,
		"select count(*) from attempts":                                                               0,
		"select count(*) from campaigns where lease_owner <> ''":                                      0,
	} {
		if n := scalar[int64](t, d.journal(), query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
	for _, query := range []string{"select count(*) from tally", "select count(*) from history", "select count(*) from projection_watermarks where applied_seq > 0"} {
		if n := scalar[int64](t, d.projections(), query); n != 0 {
			t.Errorf("%s: %d, want 0", query, n)
		}
	}
	eventually(t, patience, "what would fail is a cause", func() (bool, string) {
		var groups struct {
			Items     []struct{ Rehearsed int }
			Rehearsed struct{ Events, Failing int }
		}
		s.get(t, "/api/v1/failures/groups", &groups)
		return groups.Rehearsed.Events == 5 && groups.Rehearsed.Failing == 1 && len(groups.Items) == 1 && groups.Items[0].Rehearsed == 1, fmt.Sprintf("%+v", groups)
	})
	refused(t, do(t, s, http.MethodGet, "/api/v1/campaigns/good?min_seq=1&timeout=50ms", nil), http.StatusGatewayTimeout, "shadow_only")
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with exit code %d", code)
	}

	next := start(t, d, serve...)
	var c campaign
	next.get(t, "/api/v1/campaigns/good?min_seq=3&timeout=30s", &c)
	eventually(t, patience, "the poisoned campaign is blocked", func() (bool, string) {
		c := campaignState(t, next, "bad")
		return c.State == "blocked" && c.AppliedSeq == 1, c.Why
	})
	verifyOrder(t, d)
}
