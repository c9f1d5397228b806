package metrics

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/inbound"
)

// WatchIntake adds the gauges of each source, which call list at each scrape; when it fails they are
// left out of that scrape.
func (m *Metrics) WatchIntake(list func(ctx context.Context) ([]inbound.IntakeSource, error)) {
	m.watch("list the sources", func(ctx context.Context, gauge gauge) error {
		all, err := list(ctx)
		if err != nil {
			return err
		}
		for _, s := range all {
			gauge(intakeRejectedDesc, float64(s.Rejected), s.Name)
			gauge(intakeOldestDesc, s.OldestAge, s.Name)
		}
		return nil
	}, intakeRejectedDesc, intakeOldestDesc)
}

// WatchFindings adds how many subjects have something wrong with them, by kind and level.
func (m *Metrics) WatchFindings(list func(context.Context) (finding.List, error)) {
	m.watch("find what is wrong", func(ctx context.Context, gauge gauge) error {
		all, err := list(ctx)
		if err != nil {
			return err
		}
		type series struct{ kind, level string }
		found := map[series]float64{}
		for _, one := range all {
			found[series{string(one.Kind), string(one.Level)}]++
		}
		for s, n := range found {
			gauge(findingsDesc, n, s.kind, s.level)
		}
		return nil
	}, findingsDesc)
}

var (
	findingsDesc       = desc("findings", "What is wrong now, as the overview lists it: publishers, sources, instances, projections, runs or operations with it, or 1 where the kind has one subject only. A kind without any has no series.", "kind", "level")
	intakeRejectedDesc = desc("intake_rejected_rows", "Rows of a source that could not be journalled and wait for an operator; each blocks its campaign.", "source")
	intakeOldestDesc   = desc("intake_oldest_row_age_seconds", "Age of the first row that waits in a source's table, as of the last read; 0 when there is none.", "source")
)
