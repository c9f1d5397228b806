package runs_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPauseProjection_refusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster", "history")
	f.AppendN("a", 3)
	f.Drain()
	f.Fails("history", "a", 3, storetest.Quarantine("history"))
	pause := func(projection, campaign string) error {
		_, err := f.Runs.PauseProjection(f.Ctx, ana("why"), projection, campaign, loaded)
		return err
	}
	resume := func(projection, campaign string) error {
		_, err := f.Runs.ResumeProjection(f.Ctx, ana(""), projection, campaign, loaded)
		return err
	}
	f.Unchanged(func() {
		refused(t, pause("nothing", ""), outbox.ErrNotFound, `no projection "nothing"`)
		refused(t, pause("nothing", "a"), outbox.ErrNotFound, `no projection "nothing"`)
		refused(t, pause("roster", "nobody"), outbox.ErrNotFound, `there is no campaign "nobody"`)
		refused(t, pause("history", "a"), outbox.ErrConflict, "quarantined", "replay")
		refused(t, resume("roster", "a"), outbox.ErrConflict, "not paused", "live")
		refused(t, resume("history", "a"), outbox.ErrConflict, "not paused", "quarantined")
		refused(t, resume("roster", ""), outbox.ErrConflict, "not paused for all")
	})
	if err := pause("roster", "a"); err != nil {
		t.Fatal(err)
	}
	refused(t, pause("roster", "a"), outbox.ErrConflict, "already paused", "ana")
	if err := pause("roster", ""); err != nil {
		t.Fatal(err)
	}
	refused(t, pause("roster", ""), outbox.ErrConflict, "already paused", "all campaigns", "ana")
	refused(t, pause("roster", "a"), outbox.ErrConflict, "already paused", "all campaigns", "ana")
	refused(t, resume("roster", "a"), outbox.ErrConflict, "all campaigns", "resume it for all")
	if err := resume("roster", ""); err != nil {
		t.Fatal(err)
	}
	cursors, err := f.Runs.Cursors(f.Ctx, "a", loaded)
	if err != nil || cursors[0].State != outbox.CursorPaused || cursors[0].Paused.By != "ana" || cursors[0].Paused.Reason != "why" {
		t.Errorf("the pause of one campaign is gone: %+v, %v", cursors, err)
	}
	if err := resume("roster", "a"); err != nil {
		t.Fatal(err)
	}
	f.Sound()
	acts, err := f.AuditLog(f.Ctx, outbox.AuditFilter{Outcome: outbox.AuditDone})
	var actions []string
	for _, a := range acts.Items {
		actions = append(actions, strings.Join([]string{string(a.Action), a.CampaignID, string(a.Before)}, " "))
	}
	want := []string{`projection_resume a {"projection":"roster"}`, `projection_resume  {"projection":"roster"}`,
		`projection_pause  {"projection":"roster"}`, `projection_pause a {"projection":"roster"}`}
	if diff := cmp.Diff(want, actions); err != nil || diff != "" {
		t.Errorf("audit records: %v %s", err, diff)
	}
}
