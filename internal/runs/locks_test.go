package runs_test

import (
	"errors"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestLocks_ofRunsAreTakenInOneOrderToo(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		f.AppendN(id, 1)
	}
	orders := []outbox.RunRequest{enginetest.VerifyAll(), enginetest.Rebuild("a", "b"), enginetest.Rebuild("c"), enginetest.Rebuild("b", "c")}
	unless := func(err error, kinds ...error) error {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return nil
			}
		}
		return err
	}
	newest := func(s *fixture) int64 {
		page, err := s.Runs.List(s.Ctx, outbox.RunFilter{Limit: 1})
		if err != nil || len(page.Items) == 0 {
			return 1
		}
		return page.Items[0].ID
	}
	storetest.Everybody(t, []*fixture{f, f.Beside()}, 60, map[string]func(*fixture, int) error{
		"start": func(s *fixture, i int) error {
			_, err := s.Runs.Start(s.Ctx, ana(""), orders[i%len(orders)], enginetest.LoadedRuns)
			return unless(err, outbox.ErrConflict)
		},
		"cancel": func(s *fixture, i int) error {
			_, err := s.Runs.Cancel(s.Ctx, ana(""), newest(s))
			return unless(err, outbox.ErrConflict, outbox.ErrNotFound)
		},
		"resume": func(s *fixture, i int) error {
			_, err := s.Runs.Resume(s.Ctx, ana(""), max(1, newest(s)-int64(i%3)), enginetest.LoadedRuns)
			return unless(err, outbox.ErrConflict, outbox.ErrNotFound)
		},
		"work": func(s *fixture, i int) error {
			l, ok, err := s.Runs.Claim(s.Ctx, one, enginetest.VersionsRuns, lease)
			if err != nil || !ok {
				return err
			}
			var results []outbox.RunResult
			for _, id := range storetest.Shuffled(ids) {
				r := result(id, outbox.OutcomeMatch, 1)
				for _, p := range storetest.Shuffled([]string{"roster", "history"}) {
					r.Projections = append(r.Projections, outbox.ProjectionResult{Projection: p, Verdict: outbox.VerdictMatch})
				}
				results = append(results, r)
			}
			if _, err = s.Runs.Report(s.Ctx, l, runs.Progress{Results: results, Lease: lease}); err == nil {
				_, err = s.Runs.Finish(s.Ctx, l, []outbox.RunStatus{outbox.RunCompleted, outbox.RunFailed, outbox.RunInterrupted}[i%3], "so it goes")
			}
			return unless(err, outbox.ErrLeaseLost)
		},
		"note": func(s *fixture, _ int) error {
			var notes []outbox.Verification
			for _, id := range storetest.Shuffled(ids) {
				notes = append(notes, outbox.Verification{CampaignID: id, Projection: "roster", Verdict: outbox.VerdictDrift})
			}
			return s.RecordVerifications(s.Ctx, notes)
		},
		"end leases": func(s *fixture, _ int) error { return s.Runs.EndLeases(s.Ctx, one.ID) },
	})
	active := f.Number(`select count(*) from run_scopes where active = 1 and run_id in (select id from runs where finished_at is not null)`)
	if active != 0 {
		t.Errorf("%d scopes of runs that have ended keep others out", active)
	}
}
