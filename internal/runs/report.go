package runs

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Progress is a worker's report about the run it has leased.
type Progress struct {
	Results []replay.RunResult // of campaigns done since the last report
	Lines   []replay.RunLine   // for the log, without ids; a line without a time gets the current one
	// EventsDone is how many events of the run's scope are done so far, including those of
	// campaigns in progress.
	EventsDone      int64
	EventsPerSecond float64       // recent rate
	Lease           time.Duration // duration of the lease from now on
}

const (
	selectOutcome = `select outcome from run_results where run_id = $1 and campaign_id = $2`

	upsertResult = `
insert into run_results (run_id, campaign_id, outcome, seq, events, full_digest, projections, error, at, rehearsed)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict (run_id, campaign_id) do update
set outcome = excluded.outcome, seq = excluded.seq, events = excluded.events, full_digest = excluded.full_digest,
  projections = excluded.projections, error = excluded.error, at = excluded.at, rehearsed = excluded.rehearsed`

	insertLine = `
insert into run_log (run_id, at, campaign_id, text)
values ($1, $2, $3, $4)`
)

// Report records a worker's progress on its leased run, renews the lease and returns the status of
// the run, by which the worker learns that it is cancelling. A campaign's existing result is
// replaced. Comparisons with the current rows count as verifications.
func (rs *Runs) Report(ctx context.Context, l Lease, rep Progress) (replay.RunStatus, error) {
	var status replay.RunStatus
	err := rs.write(ctx, func(t *tx) error {
		now := rs.core.Now()
		r, err := t.leasedRun(l)
		if err != nil {
			return err
		}
		if err := t.saveResults(r, rep.Results, now); err != nil {
			return err
		}
		if err := t.saveLines(r, rep.Lines, now); err != nil {
			return err
		}
		r.Events.Done = max(r.Events.Done, rep.EventsDone) // a replay may start over
		r.Events.Total, r.Campaigns.Total = max(r.Events.Total, r.Events.Done), max(r.Campaigns.Total, r.Campaigns.Done)
		r.pace, r.expires = rep.EventsPerSecond, now+rep.Lease.Microseconds()
		status = r.Status
		return t.saveRun(r, now)
	})
	return status, sqldb.Wrapf(err, "report on run %d", l.Run.ID)
}

// saveResults writes results, counts them, and records what they verify.
func (t *tx) saveResults(r *runRow, results []replay.RunResult, now int64) error {
	before := make([]string, len(results))
	var looks, saves sqldb.Batch
	var verified []campaign.Verification
	for i := range results {
		result := &results[i]
		when := cmp.Or(sqldb.Micros(result.At), now)
		looks.Each(func(row sqldb.Row) error { return row.Scan(&before[i]) }, selectOutcome, r.ID, result.CampaignID)
		saves.Exec(nil, upsertResult, r.ID, result.CampaignID, result.Outcome, result.Seq, result.Events, result.Full,
			sqldb.JSON(orEmpty(result.Projections)), sqldb.Storable(result.Error), when, sqldb.JSON(result.Rehearsed))
		result.At = sqldb.At(when)
		verified = append(verified, result.Verifications(r.Run)...)
	}
	if err := t.RunAll(&looks); err != nil {
		return fmt.Errorf("read earlier results: %w", err)
	}
	if err := t.RunAll(&saves); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	for i := range results {
		r.count(before[i], -1)
		r.count(results[i].Outcome, 1)
	}
	return t.RecordVerifications(verified)
}

func (t *tx) saveLines(r *runRow, lines []replay.RunLine, now int64) error {
	var b sqldb.Batch
	for _, line := range lines {
		b.Exec(nil, insertLine, r.ID, cmp.Or(sqldb.Micros(line.At), now), line.CampaignID, sqldb.Storable(line.Text))
	}
	return sqldb.Wrapf(t.RunAll(&b), "write the log")
}

func orEmpty[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
