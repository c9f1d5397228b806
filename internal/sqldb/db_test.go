package sqldb

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

const notes = `
create table goose_db_version (version_id bigint not null, is_applied boolean not null, tstamp timestamp not null default current_timestamp);
create table notes (text text not null);
`

var config = Config{
	Migrations: fstest.MapFS{
		"sqlite/journal/00001_notes.sql":       {Data: []byte(notes)},
		"sqlite/projections/00001_notes.sql":   {Data: []byte(notes)},
		"postgres/journal/00001_notes.sql":     {Data: []byte(notes)},
		"postgres/projections/00001_notes.sql": {Data: []byte(notes)},
	},
	Marks: map[string]string{"journal": "notes", "projections": "notes"},
	Lease: 30 * time.Second, EventTimeout: 10 * time.Second,
}

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, ".", func(p dbtest.Pair) error {
		for name, url := range map[string]string{"journal": p.Journal, "projections": p.Projections} {
			d, err := openAt(context.Background(), name, url)
			if err != nil {
				return err
			}
			if err := d.Close(); err != nil {
				return err
			}
		}
		return nil
	}))
}

func openAt(ctx context.Context, name, url string) (*DB, error) {
	at, err := ParseURL(name+"-db", url, config)
	if err != nil {
		return nil, err
	}
	d, err := at.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return d, d.Ready(ctx)
}

func open(t *testing.T) *DB {
	d := must.Get(openAt(t.Context(), "journal", dbtest.New(t).Journal)).Or(t)
	t.Cleanup(func() { must.OK(t, d.Close()) })
	return d
}

func (d *DB) note(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return d.Write(ctx, func(t *Tx) error {
		_, err := t.Exec(`insert into notes (text) values ($1)`, text)
		return err
	})
}

func TestWrite_contextThatEndsAsTheTransactionBeginsLeavesNoneOpen(t *testing.T) {
	t.Parallel()
	d := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	slow := `begin immediate; with recursive n(i) as (values (1) union all select i + 1 from n) select count(*) from n`
	if dbtest.Postgres() {
		slow = `begin; select pg_sleep(60)`
	}
	d.begins[BeginHint] = slow
	err := d.WriteFrom(ctx, BeginHint, func(*Tx) error { return nil })
	must.Hold(t, errors.Is(err, event.ErrBusy), "got error %v, want a busy database", err)
	for range d.Dialect.writers {
		must.OK(t, d.note("after it"))
	}
}

func TestPostgresPrepare_onALostConnectionIsBusy(t *testing.T) {
	t.Parallel()
	d := open(t)
	err := d.Read(t.Context(), func(reading *Tx) error {
		var backend int64
		if _, err := reading.One([]any{&backend}, `select pg_backend_pid()`); err != nil {
			return err
		}
		if err := d.Write(t.Context(), func(other *Tx) error {
			_, err := other.Exec(`select pg_terminate_backend($1::int, 10000)`, backend)
			return err
		}); err != nil {
			return err
		}
		return reading.Prepare(`select 1`)
	})
	must.Hold(t, errors.Is(err, event.ErrBusy), "got error %v, want a busy database", err)
}

func TestNoRoom_isEveryWayInWhichADiskIsFull(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EFBIG: true,
		syscall.EIO: false, syscall.EROFS: false, nil: false,
	} {
		wrapped := err
		if err != nil {
			wrapped = errors.Join(&fs.PathError{Op: "write", Path: "x", Err: err})
		}
		must.Equal(t, diskFull(wrapped), want, err)
	}
}
