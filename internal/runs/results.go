package runs

import (
	"context"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

const resultColumns = `campaign_id, outcome, seq, events, full_digest, projections, error, at, rehearsed`

const selectResults = "\nselect " + resultColumns + "\nfrom run_results"

func scanResult(row sqldb.Row) (replay.RunResult, error) {
	var r replay.RunResult
	err := row.Scan(&r.CampaignID, &r.Outcome, &r.Seq, &r.Events, &r.Full, sqldb.ScanJSON(&r.Projections), &r.Error, sqldb.ScanTime(&r.At), sqldb.ScanJSON(&r.Rehearsed))
	if err != nil {
		return r, fmt.Errorf("result of campaign %q: %w", r.CampaignID, err)
	}
	for i := range r.Projections {
		if c := r.Projections[i].Comparison; c != nil {
			c.Samples, c.BuiltVersions = orEmpty(c.Samples), orEmpty(c.BuiltVersions)
		}
	}
	return r, nil
}

// scanResultBriefly is scanResult without the samples of the comparisons, which are nil.
func scanResultBriefly(row sqldb.Row) (replay.RunResult, error) {
	r, err := scanResult(row)
	for i := range r.Projections {
		if c := r.Projections[i].Comparison; c != nil {
			c.Samples = nil
		}
	}
	return r, err
}

var (
	resultsAll = sqldb.BothWays(selectResults + `
where campaign_id {>} $1
  and run_id = $2
order by campaign_id{desc}
limit $3`)

	resultsByOutcome = sqldb.BothWays(selectResults + `
where campaign_id {>} $1
  and run_id = $2
  and outcome = $3
order by campaign_id{desc}
limit $4`)
)

// Results pages through the results of a run by campaign. A missing run is event.ErrNotFound.
func (rs *Runs) Results(ctx context.Context, f replay.ResultFilter) (event.Page[replay.RunResult], error) {
	l := &sqldb.List[replay.RunResult]{
		Name: "run-results", Query: resultsAll, Args: []any{f.RunID}, Scan: scanResultBriefly,
		Low: []any{""}, High: []any{sqldb.BeyondTexts},
		Key: func(r replay.RunResult) []any { return []any{r.CampaignID} },
	}
	if f.Samples {
		l.Scan = scanResult
	}
	if f.Outcome != "" {
		l.Name, l.Query, l.Args = "run-results-"+f.Outcome, resultsByOutcome, []any{f.RunID, f.Outcome}
	}
	return pageOfRun(ctx, rs, f.RunID, fmt.Sprintf("list the results of run %d", f.RunID), l, f.Cursor, f.Limit)
}

// pageOfRun reads a page of a list of a run. A missing run is event.ErrNotFound.
func pageOfRun[T any](ctx context.Context, rs *Runs, id int64, what string, l *sqldb.List[T], cursor string, limit int) (event.Page[T], error) {
	return reading(ctx, rs, what, func(t *tx) (page event.Page[T], err error) {
		if _, err = t.existingRun(id); err != nil {
			return page, err
		}
		return l.Page(t, cursor, limit)
	})
}

// RebuildOf is a rebuild of what a verify found to differ, and of no more: of the first MaxRunCampaigns
// campaigns if there are more and others do not differ.
func (rs *Runs) RebuildOf(ctx context.Context, verify int64) (o replay.RunRequest, err error) {
	run, err := rs.Get(ctx, verify)
	o.Kind = replay.RunRebuild
	f := replay.ResultFilter{RunID: verify, Outcome: replay.OutcomeDrift, Limit: event.MaxPage}
	for more := true; more && err == nil && len(o.Campaigns) < event.MaxRunCampaigns; {
		var page event.Page[replay.RunResult]
		page, err = rs.Results(ctx, f)
		for _, r := range page.Items {
			o.Campaigns = append(o.Campaigns, r.CampaignID)
			for _, p := range r.Projections {
				if p.Verdict == campaign.VerdictDrift && !slices.Contains(o.Projections, p.Projection) {
					o.Projections = append(o.Projections, p.Projection)
				}
			}
		}
		if more = page.NextCursor != nil; more {
			f.Cursor = *page.NextCursor
		}
	}
	if run.AllDrifted() {
		o.All = true
		if o.Campaigns = nil; run.Counts.Drifted > event.MaxRunCampaigns {
			o.Projections = run.Projections
		}
	}
	return o, err
}

const selectResult = selectResults + `
where run_id = $1
  and campaign_id = $2`

func (t *tx) runResult(id int64, campaign string) (result replay.RunResult, found bool, err error) {
	result, found, err = sqldb.First(t, scanResult, selectResult, id, campaign)
	return result, found, sqldb.Wrapf(err, "read the result of run %d in campaign %q", id, campaign)
}

// ResultOf reads the result of one campaign of a run, with samples. A missing one is
// event.ErrNotFound.
func (rs *Runs) ResultOf(ctx context.Context, id int64, campaign string) (replay.RunResult, error) {
	return reading(ctx, rs, "", func(t *tx) (replay.RunResult, error) {
		if _, err := t.existingRun(id); err != nil {
			return replay.RunResult{}, err
		}
		result, found, err := t.runResult(id, campaign)
		if err == nil && !found {
			err = event.NotFound("run %d has no result for campaign %q", id, campaign)
		}
		return result, err
	})
}

var runLines = sqldb.BothWays(`
select id, at, campaign_id, text
from run_log
where id {>} $1
  and run_id = $2
order by id{desc}
limit $3`)

func scanLine(row sqldb.Row) (line replay.RunLine, err error) {
	err = row.Scan(&line.ID, sqldb.ScanTime(&line.At), &line.CampaignID, &line.Text)
	return line, err
}

// Log pages through the log of a run, newest first, limit lines at a time: 0 means 50, at most 200.
// A missing run is event.ErrNotFound.
func (rs *Runs) Log(ctx context.Context, id int64, cursor string, limit int) (event.Page[replay.RunLine], error) {
	l := sqldb.Newest("run-log", runLines, scanLine, func(line replay.RunLine) int64 { return line.ID }, id)
	return pageOfRun(ctx, rs, id, fmt.Sprintf("read the log of run %d", id), l, cursor, limit)
}
