// Package facts holds what is known of the whole system at one moment, reads it, and finds what is wrong.
package facts

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Reader reads from the features of one process.
type Reader struct {
	Store      *store.Store
	Operations *operations.Operations
	Runs       *runs.Runs
	Publishing *publishing.Progress
	Intake     *intake.Intake
	// Loaded are the projections of this process; nil in one without, which knows what others have loaded.
	Loaded []campaign.ProjectionInfo
	Build  string // of the program

	shared store.Snapshot[Facts]
	gone   map[finding.Owner]time.Time // since when a finding that has an owner has not been found; of ForgetOwners
}

// Among how many of the latest runs the facts look for lost ones, and how many of the operations that have
// ended they have.
const (
	factsRuns  = 50
	factsEnded = 20
)

// behindLimit bounds how long facts wait for details of the projections database.
const behindLimit = 2 * time.Second

// Begin makes every action end the facts that were read before it.
func (e *Reader) Begin() { e.Store.OnChange(e.shared.Forget) }

// Read returns what is known, at most a second old: shared snapshots, and where these show trouble, what is
// behind it. Callers share it and must not change what it points to.
func (e *Reader) Read(ctx context.Context) (Facts, error) {
	return e.shared.Get(ctx, func() (Facts, error) {
		f, err := e.read(context.WithoutCancel(ctx))
		return f.Judged(time.UnixMicro(e.Store.Now())), err
	})
}

// Findings returns what is wrong.
func (e *Reader) Findings(ctx context.Context) (finding.List, error) {
	f, err := e.Read(ctx)
	return f.Findings, err
}

func (e *Reader) read(ctx context.Context) (f Facts, err error) {
	if f.Summary, err = e.Store.Summary(ctx); err != nil {
		return f, err
	}
	f.Build = e.Build
	if f.Loaded = f.Summary.Built(e.Loaded); e.Loaded == nil {
		for _, name := range slices.Sorted(maps.Keys(f.Summary.Installed)) {
			if i := f.Summary.Installed[name]; i.Version != "" {
				f.Loaded = append(f.Loaded, campaign.ProjectionInfo{Name: name, Version: i.Version, RowsBuilt: i.Rows(i.Version)})
			}
		}
	}
	c := f.Summary.Campaigns
	for _, read := range []struct {
		needed bool
		read   func() error
	}{
		{true, func() error { f.Owners, err = e.owners(ctx); return err }},
		{true, func() error { f.Publishers, err = e.Publishing.Publishers(ctx); return err }},
		{true, func() error { f.Sources, err = e.Intake.States(ctx); return err }},
		{f.Summary.Counts.Failed+f.Summary.Counts.Dead > 0 || e.Store.Mode() == campaign.ModeShadow, func() error { f.Groups, err = e.Store.ErrorGroups(ctx); return err }},
		{c.Drifted+c.Unverifiable > 0, func() error { f.Found, err = e.Store.FoundDrift(ctx); return err }},
		{c.Drifted > 0, func() error { f.Drifted, err = e.Store.Drifted(ctx, MaxVerifications); return err }},
		{c.Drifted > 0, func() error { f.DriftBuilt, err = e.Store.DriftBuilt(ctx); return err }},
		{c.Drifted > 0, func() error { f.Compared, err = e.Runs.Compared(ctx); return err }},
		{c.Unverifiable > 0, func() error { f.Unverified, err = e.Store.Unverified(ctx, MaxVerifications); return err }},
		{f.Summary.Operations.Unacknowledged > 0, func() error { f.Ended, err = e.ended(ctx); return err }},
		{len(campaign.QuarantinedAmong(f.Summary.Held)) > 0, func() error { return e.readQuarantines(ctx, &f) }},
		{true, func() error { f.Runs, err = e.Runs.SinceLost(ctx, factsRuns); return err }},
	} {
		if read.needed {
			if err := read.read(); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// readQuarantines reads details from the projections database. Without it the facts say less.
func (e *Reader) readQuarantines(ctx context.Context, f *Facts) (err error) {
	limited, cancel := context.WithTimeout(ctx, behindLimit)
	defer cancel()
	if causes, _, err := e.Store.ReadModel().QuarantineCauses(limited); err == nil {
		f.Quarantined = causes
	}
	f.Passed, err = e.Runs.QuarantinesPassed(ctx, e.Loaded)
	return err
}

// ended are the last operations that wait to be acknowledged.
func (e *Reader) ended(ctx context.Context) ([]operations.Operation, error) {
	unread := false
	page, err := e.Operations.List(ctx, operations.OperationFilter{Acknowledged: &unread, Limit: factsEnded})
	return slices.DeleteFunc(page.Items, func(o operations.Operation) bool { return !o.Acknowledgeable() }), err
}
