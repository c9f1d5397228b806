package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// fixtureCmd prints a failing event as a file.
type fixtureCmd struct {
	Campaign string `arg:"" help:"The campaign's id."`
	Seq      int64  `arg:"" help:"The event's number in it."`
	redactFlags
}

// Run prints the fixture.
func (c *fixtureCmd) Run(ctx context.Context, a *app) error {
	f, err := readShown(ctx, a, c.redactFlags, func(hide *redact.Redactor, st *engine.Engine, set *projection.Set, _ *timetravel.Travel) (projection.Fixture, error) {
		if err := refuseOthers(ctx, st, set); err != nil {
			return projection.Fixture{}, err
		}
		return runs.MakeFixture(ctx, st.Queue, set, redact.Of(hide), event.RowKey{CampaignID: c.Campaign, Seq: c.Seq})
	})
	if err != nil {
		return err
	}
	return a.printJSON(f)
}

// reproduceCmd tries a fixture.
type reproduceCmd struct {
	File string `arg:"" placeholder:"FILE" help:"The fixture."`
}

// reproduceTime bounds what the SQL of a stranger's file may take.
const reproduceTime = 2 * time.Minute

// Run applies the fixture's events in a temporary database of SQLite. It exits with 1 if the event does not fail as
// it did there.
func (c *reproduceCmd) Run(ctx context.Context, a *app) error {
	file, err := os.Open(c.File)
	if err != nil {
		return usagef("cannot read %s: %v", c.File, event.Cause(err))
	}
	defer file.Close()
	f, err := runs.ReadFixture(file)
	if err != nil {
		return usagef("%s: %s", c.File, refusalText(err))
	}
	ctx, cancel := context.WithTimeout(ctx, reproduceTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "outboxweb-reproduce-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	st, err := store.Open(ctx, store.Options{Journal: "sqlite:" + filepath.Join(dir, "journal.db"), Projections: "sqlite:" + filepath.Join(dir, "projections.db")})
	if err != nil {
		return err
	}
	defer st.Close()
	r, err := runs.Reproduce(ctx, st, f)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the fixture was given up after %s", event.Limit(reproduceTime))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, strings.Join(append([]string{r.Says}, r.Notes...), "\n"))
	return cmp.Or(err, problems(!r.Alike))
}
