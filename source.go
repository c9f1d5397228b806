package outboxweb

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/intake"
)

// Source is a table of the service's own database, into which it writes events in its own
// transactions, such as with package intake. Run moves its rows to the journal, each exactly once. The
// table must exist; while the database is away, the console shows its error, and Run retries.
type Source struct {
	// URL is the database: sqlite:PATH, or postgres://…. It is required.
	URL string
	// Table is TABLE, or SCHEMA.TABLE. Empty means outboxweb_intake.
	Table string
	// Layout is that of the table: outboxweb, or debezium. Empty means outboxweb.
	Layout string
	// BatchSize is how many rows are read and appended at a time, at most 10,000. 0 means 1,000.
	BatchSize int
	// PollInterval is how often the table is read while it is empty. 0 means 1 s.
	PollInterval time.Duration
	// KeepMoved is how long events of moved rows are kept in the service's database, in a table of
	// their own. A journal that fails over to a standby without its last commits gets them back from
	// there. 0 means that they are not kept.
	KeepMoved time.Duration
}

// sources checks the sources of the configuration, in the order of their names.
func (c *Config) sources() (intake.Settings, error) {
	var settings intake.Settings
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		s := c.Sources[name]
		checked, err := intake.Definition{URL: s.URL, Table: s.Table, Layout: s.Layout, BatchSize: s.BatchSize, PollInterval: s.PollInterval, KeepMoved: s.KeepMoved}.Source(name)
		if refusal, ok := errors.AsType[*event.Refusal](err); ok {
			return settings, event.Setup("Sources: source %q: %s", name, refusal.Detail)
		}
		if err != nil {
			return settings, err
		}
		settings.Sources = append(settings.Sources, checked)
	}
	return settings, nil
}
