package storetest

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// MustReconcile fails unless a reconcile makes the wanted repairs.
func (f *Fixture) MustReconcile(want campaign.Repaired) {
	got, err := f.Reconcile(f.Ctx)
	must.Need(f.TB, err == nil && got == want, "reconciled %+v, %v, want %+v", got, err, want)
}

// MustBeReconciled fails unless another reconcile finds nothing and writes nothing.
func (f *Fixture) MustBeReconciled() { f.untouched(func() { f.MustReconcile(campaign.Repaired{}) }) }

// untouched fails when act changes or writes anything.
func (f *Fixture) untouched(act func()) {
	before := f.Modified()
	f.Unchanged(act)
	must.Equal(f.TB, f.Modified(), before, "a repair of what is right")
}

// MustFindGaps reads the existing gaps.
func (f *Fixture) MustFindGaps() []campaign.Gap { return must.Get(f.Gaps(f.Ctx)).Or(f.TB) }

// LoseRows deletes rows without the store and recounts the campaign's row, as if the rows had never been written.
func (f *Fixture) LoseRows(campaign, where string) {
	f.Exec(`delete from projection_apply_outbox where campaign_id = $1 and `+where, campaign)
	f.Exec(`update campaigns set
  pending = (select count(*) from projection_apply_outbox o where o.campaign_id = $1 and status = 'pending'),
  (head_seq, head_status, head_next_attempt_at, oldest_enqueued_at, due_at) =
    (select seq, status, next_attempt_at, enqueued_at, next_attempt_at from projection_apply_outbox o where o.campaign_id = $1 order by seq limit 1)
where campaign_id = $1`, campaign)
}

// Tamper changes events, with the triggers that forbid it dropped.
func (f *Fixture) Tamper(query string, args ...any) {
	of := ""
	if f.OnPostgres() {
		of = ` on events`
	}
	f.Exec(`drop trigger if exists events_refuse_update` + of)
	f.Exec(`drop trigger if exists events_refuse_delete` + of)
	f.Exec(query, args...)
}

// SelfCheckAll runs a self-check over all campaigns once and returns what it found.
func (f *Fixture) SelfCheckAll() (found []outbox.Found) {
	for at := (maintenance.Round{}); ; {
		next, more, err := f.SelfCheck(f.Ctx, at, 2)
		must.OK(f.TB, err)
		found = append(found, more...)
		if at = next; at.Campaign == "" {
			return found
		}
	}
}

// SelfCheckIsCalm fails when another self-check changes or writes anything.
func (f *Fixture) SelfCheckIsCalm() {
	f.untouched(func() { found := f.SelfCheckAll(); must.Hold(f.TB, len(found) <= 0, "another check found %+v", found) })
}

// SelfCheckOne fails unless one step of the self-check finds just one campaign.
func (f *Fixture) SelfCheckOne(id string) outbox.Found {
	_, found, err := f.SelfCheck(f.Ctx, maintenance.Round{}, 1)
	must.Need(f.TB, err == nil && len(found) == 1 && found[0].CampaignID == id, "the self-check found %+v, %v, want %s", found, err, id)
	return found[0]
}

// Exact fails unless the campaign's row matches a recount of its events and rows, made without the store.
func (f *Fixture) Exact(id string) {
	for _, c := range f.Recount() {
		must.Hold(f.TB, c.ID != id || c.Problem == "", "the row of campaign %s: %s", id, c.Problem)
	}
}

const recount = `
select
  c.high_water_seq = (select coalesce(max(seq), 0) from events e where e.campaign_id = c.campaign_id),
  c.high_water_seq = (select count(*) from events e where e.campaign_id = c.campaign_id),
  c.chain_hash = coalesce((select chain_hash from events e where e.campaign_id = c.campaign_id order by seq desc limit 1), ''),
  c.pending = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'pending'),
  c.processing = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'processing'),
  c.failed = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'failed'),
  c.dead = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'dead'),
  c.head_seq is not distinct from h.seq,
  c.head_status is not distinct from h.status,
  c.head_next_attempt_at is not distinct from h.next_attempt_at,
  c.oldest_enqueued_at is not distinct from (select recorded_at from events e where e.campaign_id = c.campaign_id and e.seq = c.applied_seq + 1),
  c.skips = (select count(*) from skips k where k.campaign_id = c.campaign_id and undone_at is null),
  c.campaign_id, c.lease_epoch, c.due_at, c.head_next_attempt_at, c.paused_at, c.head_status, c.diverged, c.lease_owner, c.lease_expires_at,
  h.seq is null and c.high_water_seq > c.applied_seq
from campaigns c
left join projection_apply_outbox h on h.campaign_id = c.campaign_id
  and h.seq = (select min(seq) from projection_apply_outbox o where o.campaign_id = c.campaign_id)`

var recountedParts = []string{"high water", "density", "chain hash", "pending", "processing", "failed", "dead", "head", "head's status", "head's next attempt", "oldest", "skips"}

// Recounted is the result of recounting one campaign.
type Recounted struct {
	ID      string
	Epoch   int64
	Problem string // empty when the campaign's row is exact

	due, next, paused sql.NullInt64
	status            sql.NullString
	diverged, owner   string
	expiry            int64
	bare              bool // events are unapplied and none has a row
}

// Recount recounts all campaigns, without the store.
func (f *Fixture) Recount() []Recounted {
	var all []Recounted
	eachRow(f.TB, f.JournalDB, recount, nil, func(rows *sql.Rows) error {
		var c Recounted
		right := make([]bool, len(recountedParts))
		var dest []any
		for i := range right {
			dest = append(dest, &right[i])
		}
		err := rows.Scan(append(dest, &c.ID, &c.Epoch, &c.due, &c.next, &c.paused, &c.status, &c.diverged, &c.owner, &c.expiry, &c.bare)...)
		if i := slices.Index(right, false); i >= 0 {
			c.Problem = recountedParts[i] + " is wrong"
		} else {
			c.Problem = c.wrongDue(f.Clock.Now().UnixMicro())
		}
		all = append(all, c)
		return err
	})
	return all
}

// wrongDue checks due_at against its definition: null for a campaign that waiting alone never makes claimable, the lease's end while it is leased, and
// otherwise the head's next attempt or the later time at which it became ready.
func (c *Recounted) wrongDue(now int64) string {
	idle := c.diverged != "" || c.paused.Valid || !c.next.Valid && !(c.bare && c.owner != "") || c.status.String == "dead"
	switch {
	case idle != !c.due.Valid:
		return fmt.Sprintf("due_at is %v, head %v, paused %v", c.due, c.status, c.paused)
	case !idle && c.owner != "" && c.due.Int64 != c.expiry:
		return fmt.Sprintf("due_at is %d, the lease ends at %d", c.due.Int64, c.expiry)
	case !idle && c.owner == "" && c.due != c.next && (c.due.Int64 < c.next.Int64 || c.due.Int64 > now):
		return fmt.Sprintf("due_at is %d, the head's next attempt %d, now %d", c.due.Int64, c.next.Int64, now)
	}
	return ""
}

// Dump is the whole content of both databases for comparison, one line per row, except some tables and the records of refused actions. It leaves out the
// counter of positions, since a repeated append consumes one.
func (f *Fixture) Dump(except ...string) string {
	var all strings.Builder
	for _, db := range []*sql.DB{f.JournalDB, f.ProjectionsDB} {
		for _, table := range dbtest.Tables(f.TB, db) {
			query := `select * from "` + table + `"`
			if table == "audit_log" {
				query += ` where outcome <> 'refused'`
			}
			if !slices.Contains(except, table) {
				all.WriteString(dumpQuery(f.TB, db, table, query))
			}
		}
	}
	return all.String()
}

// dumpQuery is the result of a query in lines, in order.
func dumpQuery(tb testing.TB, db *sql.DB, name, query string) string {
	var lines []string
	eachRow(tb, db, query, nil, func(rows *sql.Rows) error {
		columns, _ := rows.Columns()
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		err := rows.Scan(dest...)
		lines = append(lines, fmt.Sprintf("%s %v\n", name, values))
		return err
	})
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Unchanged fails when act changes either database.
func (f *Fixture) Unchanged(act func()) {
	before := f.Dump()
	act()
	must.Equal(f.TB, f.Dump(), before, "an act")
}

// Modified is a value that changes with every write to either database: on SQLite the files' sizes and times, on PostgreSQL the youngest transaction and the
// number of rows in each table, without some tables.
func (f *Fixture) Modified(except ...string) string {
	var b strings.Builder
	if f.OnPostgres() {
		for _, db := range []*sql.DB{f.JournalDB, f.ProjectionsDB} {
			for _, table := range dbtest.Tables(f.TB, db) {
				if !slices.Contains(except, table) {
					fmt.Fprintln(&b, table, Texts(f.TB, db, `select concat(max(cast(cast(xmin as text) as bigint)), ' ', count(*)) from "`+table+`"`))
				}
			}
		}
		return b.String()
	}
	for _, name := range []string{"journal.db", "journal.db-wal", "projections.db", "projections.db-wal"} {
		info, err := os.Stat(filepath.Join(f.Pair.Dir, name))
		must.Need(f.TB, err == nil || errors.Is(err, os.ErrNotExist), "%v", err)
		if err == nil {
			fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}
