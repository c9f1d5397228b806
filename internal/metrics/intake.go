package metrics

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// WatchIntake adds the gauges of each source, which call list at each scrape; when it fails they are
// left out of that scrape.
func (m *Metrics) WatchIntake(list func(ctx context.Context) ([]outbox.IntakeSource, error)) {
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

var (
	intakeRejectedDesc = desc("intake_rejected_rows", "Rows of a source that could not be journalled and wait for an operator; each blocks its campaign.", "source")
	intakeOldestDesc   = desc("intake_oldest_row_age_seconds", "Age of the first row that waits in a source's table, as of the last read; 0 when there is none.", "source")
)
