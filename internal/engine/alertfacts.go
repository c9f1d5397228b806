package engine

import (
	"context"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// Alerts are the alerts of an engine under the settings; their errors lack what the builtin rules of
// redaction hide.
func (e *Engine) Alerts(settings alerts.Settings, version string, link alerts.Link) *alerts.Alerts {
	return alerts.New(e.Store, alerts.Options{Settings: settings, Version: version, Link: link, Hide: redact.Builtin().Text})
}

// alertFacts reads what the rules of alerts decide on: shared snapshots, and where these show trouble,
// what is behind it. loaded are the projections of this process.
func (e *Engine) alertFacts(ctx context.Context, loaded []outbox.ProjectionInfo) (f outbox.AlertFacts, err error) {
	if f.Summary, err = e.Summary(ctx); err != nil {
		return f, err
	}
	if f.Publishers, err = e.Publishing.Publishers(ctx); err != nil {
		return f, err
	}
	if f.Sources, err = e.Intake.States(ctx); err != nil {
		return f, err
	}
	if c := f.Summary.Campaigns; c.Drifted+c.Unverifiable > 0 {
		if f.Found, err = e.FoundDrift(ctx); err != nil {
			return f, err
		}
	}
	if f.FailedRuns, err = e.failedRuns(ctx); err != nil {
		return f, err
	}
	e.readBehindAlerts(ctx, &f, loaded)
	if f.Summary.Counts.Dead == 0 {
		return f, nil
	}
	groups, err := e.ErrorGroups(ctx)
	f.Groups = groups.Groups
	return f, err
}

// behindLimit bounds how long the rules wait for the projections database.
const behindLimit = 2 * time.Second

// readBehindAlerts reads details from the projections database. Without it the rules say less.
func (e *Engine) readBehindAlerts(ctx context.Context, f *outbox.AlertFacts, loaded []outbox.ProjectionInfo) {
	ctx, cancel := context.WithTimeout(ctx, behindLimit)
	defer cancel()
	f.OtherBuilt = slices.DeleteFunc(f.Summary.Built(loaded), func(p outbox.ProjectionInfo) bool { return !p.BuiltByOtherVersion })
	if len(outbox.QuarantinedAmong(f.Summary.Held)) > 0 {
		if causes, _, err := e.ReadModel().QuarantineCauses(ctx); err == nil {
			f.Quarantined = causes
		}
	}
}

// failedRuns returns the latest failed runs, newest first, without those of a kind of which a later
// one completed.
func (e *Engine) failedRuns(ctx context.Context) ([]outbox.Run, error) {
	failed, err := e.Runs.List(ctx, outbox.RunFilter{Status: outbox.RunFailed})
	if err != nil {
		return nil, err
	}
	completed := make(map[outbox.RunKind]int64) // the latest of each kind
	for _, r := range failed.Items {
		if _, known := completed[r.Kind]; known {
			continue
		}
		page, err := e.Runs.List(ctx, outbox.RunFilter{Kind: r.Kind, Status: outbox.RunCompleted, Limit: 1})
		if err != nil {
			return nil, err
		}
		completed[r.Kind] = 0
		for _, done := range page.Items {
			completed[r.Kind] = done.ID
		}
	}
	return slices.DeleteFunc(failed.Items, func(r outbox.Run) bool { return r.ID < completed[r.Kind] || r.Kind == outbox.RunRehearse }), nil
}
