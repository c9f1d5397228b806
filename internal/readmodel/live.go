package readmodel

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Live is a snapshot of the projections database, for comparing live rows with replayed ones.
// It belongs to one goroutine and ends with its context.
type Live struct {
	t     *sql.Tx
	typed bool // see sqldb.Dialect
}

// LiveReaders is how many Lives can be open at a time in addition to other reads.
const LiveReaders = 4

// Position is the state of a projection in a campaign.
type Position struct {
	AppliedSeq int64 // unused while it is live: then it follows the watermark
	Generation int64
	State      string // one of the campaign.Cursor… states
}

// Live takes a snapshot of the projections database. The caller must Close it: on SQLite the
// WAL file grows while it is open.
func (d *Database) Live(ctx context.Context) (*Live, error) {
	t, err := d.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	// The snapshot is taken by the first read.
	if _, err := t.ExecContext(ctx, `select count(*) from projection_versions`); err != nil {
		t.Rollback()
		return nil, fmt.Errorf("read the projections database: %w", err)
	}
	return &Live{t, d.Dialect.Typed}, nil
}

// QueryContext reads live rows. They must be closed before any other call.
func (l *Live) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return l.t.QueryContext(ctx, query, args...)
}

// AsApplied reads live rows with arguments that are sent as those of a projection's statement are.
type AsApplied struct{ *Live }

// QueryContext is that of Live.
func (l AsApplied) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if l.typed {
		args = asTexts(args)
	}
	return l.Live.QueryContext(ctx, query, args...)
}

// Watermark reads the watermark of a campaign; false when there is none.
func (l *Live) Watermark(ctx context.Context, campaign string) (w Watermark, known bool, err error) {
	err = l.each(ctx, func(row sqldb.Row) error {
		known = true
		w, err = ScanWatermark(row)
		return err
	}, SelectWatermark, campaign)
	return w, known, err
}

// Positions reads the positions of a campaign's projections, by name. A projection that was
// never rebuilt, quarantined or paused is left out: it is live, with generation 1.
func (l *Live) Positions(ctx context.Context, campaign string) (map[string]Position, error) {
	stands := make(map[string]Position)
	err := l.each(ctx, collectStands(stands), selectStands, campaign)
	return stands, err
}

const selectPaused = `
select projection
from projection_versions
where paused_at is not null`

// PausedForAll reads which projections are paused for all campaigns.
func (l *Live) PausedForAll(ctx context.Context) (map[string]bool, error) {
	paused := make(map[string]bool)
	err := l.each(ctx, func(row sqldb.Row) error {
		var name string
		err := row.Scan(&name)
		paused[name] = true
		return err
	}, selectPaused)
	return paused, err
}

const selectStands = `
select projection, applied_seq, generation, state
from projection_cursors
where campaign_id = $1`

func collectStands(into map[string]Position) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var name string
		var at Position
		err := row.Scan(&name, &at.AppliedSeq, &at.Generation, &at.State)
		into[name] = at
		return err
	}
}

func (l *Live) each(ctx context.Context, scan func(sqldb.Row) error, query string, args ...any) error {
	rows, err := l.t.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read the projections database: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Close ends the snapshot.
func (l *Live) Close() error { return l.t.Rollback() }
