package sqldb

import (
	"context"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/outboxweb/outboxweb/internal/dbtest"
)

// A creation that stops at any of its migrations, as when its process is killed, leaves a database
// that a command which may create but not migrate makes whole.
func TestReady_creationThatStopsAnywhereIsDoneByTheNextThatMayCreate(t *testing.T) {
	t.Parallel()
	const steps = 3
	whole := fstest.MapFS{}
	for _, kind := range []string{"sqlite", "postgres"} {
		whole[kind+"/journal/00001_notes.sql"] = &fstest.MapFile{Data: []byte(notes)}
		for step := 2; step <= steps; step++ {
			whole[fmt.Sprintf("%s/journal/%05d_step.sql", kind, step)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\n-- +goose StatementBegin\ncreate table step_%d (n integer not null);\ninsert into step_%d (n) values (1);\n-- +goose StatementEnd\n", step, step)}
		}
	}
	creating := config
	creating.Migrations, creating.NoMigrate = whole, true
	for stop := 2; stop <= steps; stop++ {
		broken := fstest.MapFS{}
		for name, file := range whole {
			broken[name] = file
		}
		for _, kind := range []string{"sqlite", "postgres"} {
			broken[fmt.Sprintf("%s/journal/%05d_step.sql", kind, stop)] = &fstest.MapFile{Data: []byte("-- +goose Up\ncreate table half_done (n integer not null);\nselect n from nowhere;\n")}
		}
		stopping := config
		stopping.Migrations = broken
		url := dbtest.Fresh(t).Journal
		if d, err := openWith(t.Context(), url, stopping); err == nil {
			t.Fatal("a migration that fails was applied")
		} else if err := d.ClosePools(); err != nil {
			t.Fatal(err)
		}
		d, err := openWith(t.Context(), url, creating)
		if err != nil {
			t.Fatalf("stopped at migration %d: %v", stop, err)
		}
		applied, err := d.Migrations(t.Context())
		if err != nil || len(applied) != steps || applied[0].AppliedAt == nil || applied[steps-1].AppliedAt == nil {
			t.Errorf("stopped at migration %d: the migrations are %+v, %v", stop, applied, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// openWith opens the journal at url as commands do.
func openWith(ctx context.Context, url string, c Config) (*DB, error) {
	at, err := ParseURL("journal-db", url, c)
	if err == nil {
		err = at.Admit(ctx, "journal")
	}
	if err != nil {
		return nil, err
	}
	d, err := at.Open(ctx, "journal")
	if err != nil {
		return nil, err
	}
	return d, d.Ready(ctx)
}
