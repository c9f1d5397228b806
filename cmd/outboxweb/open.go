package main

import (
	"context"
	"errors"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/internal/tokens"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// storeOptions returns the store's options from the common flags, for a command that uses existing
// databases: it neither creates nor migrates them.
func (a *app) storeOptions() store.Options {
	return store.Options{Journal: a.JournalDB, Projections: a.ProjectionsDB, NoCreate: true, NoMigrate: true,
		Mode: outbox.Mode(a.Mode), MaxPayload: a.MaxPayload, ReasonFrom: a.ReasonFrom}
}

// migratingOptions returns storeOptions for a command that migrates both databases to this
// program's version.
func (a *app) migratingOptions() store.Options {
	o := a.storeOptions()
	o.NoCreate, o.NoMigrate = false, false
	return o
}

// engine is a store with the packages that work on it.
type engine struct {
	*store.Store
	maintenance *maintenance.Maintenance
	search      *search.Search
	tokens      *tokens.Tokens
	operations  *operations.Operations
	runs        *runs.Runs
	publishing  *publishing.Progress
}

// wire builds the engine around a store that is not in use yet.
func wire(st *store.Store) *engine {
	return &engine{Store: st, maintenance: maintenance.New(st), search: search.New(st), tokens: tokens.New(st), operations: operations.New(st), runs: runs.New(st), publishing: publishing.NewProgress(st)}
}

// workOnRuns lets a worker's process execute runs as well.
func workOnRuns(w *worker.Worker, st *engine, c runs.WorkerConfig) {
	c.Runs, c.Set, c.Worker, c.Logger, c.Applying, c.Failure = st.runs, w.Set, w.Name(), w.Logger, w.Applying, w.Failure
	w.Beside = append(w.Beside, runs.NewWorker(c).Work)
}

// withStore runs do with an open store.
func (a *app) withStore(ctx context.Context, do func(*engine) error) error {
	st, err := a.openStore(ctx, a.storeOptions())
	if err != nil {
		return err
	}
	defer st.Close()
	return do(st)
}

// openStore opens both databases and registers the event types that
// --audit-only names. The caller closes the store.
func (a *app) openStore(ctx context.Context, o store.Options) (*engine, error) {
	if a.MaxPayload < 1 {
		return nil, usagef("--max-payload must be 1 or more")
	}
	opened, err := store.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	st := wire(opened)
	if len(a.AuditOnly) == 0 || o.ReadOnly {
		return st, nil
	}
	intents := map[string]outbox.Intent{}
	for _, eventType := range a.AuditOnly {
		intents[eventType] = outbox.IntentAuditOnly
	}
	if err := st.RegisterEventTypes(ctx, intents); err != nil {
		st.Close()
		return nil, asUsage("--audit-only", err)
	}
	return st, nil
}

// loadProjections loads the files of --projections for the projections database, and checks them
// before any database is touched. An error names the file and line at fault.
func (a *app) loadProjections(ctx context.Context) (*projection.Set, error) {
	set, err := projection.Check(ctx, a.ProjectionFiles...)
	if err == nil && onPostgres(a.ProjectionsDB) {
		set, err = projection.Load("postgres", a.ProjectionFiles...)
	}
	if err != nil {
		return nil, asUsage("--projections", err)
	}
	return set, nil
}

// onPostgres reports whether a database URL leads to PostgreSQL.
func onPostgres(url string) bool { return strings.HasPrefix(url, "postgres") }

// openBoth opens the store, loads the projections and makes their tables.
func (a *app) openBoth(ctx context.Context) (*engine, *projection.Set, error) {
	return a.openBothWith(ctx, a.storeOptions())
}

// readingBoth runs do on databases that are only read, with the projections of this command, which
// may be other versions than the installed ones and are not installed.
func (a *app) readingBoth(ctx context.Context, do func(*engine, *projection.Set, *timetravel.Travel) error) error {
	o := a.storeOptions()
	o.ReadOnly = true
	st, set, err := a.openBothWith(ctx, o)
	if err != nil {
		return err
	}
	defer st.Close()
	travel := timetravel.New(timetravel.Config{Store: st.Store, Set: set})
	defer travel.Close()
	return do(st, set, travel)
}

func (a *app) openBothWith(ctx context.Context, o store.Options) (*engine, *projection.Set, error) {
	set, err := a.loadProjections(ctx)
	if err != nil {
		return nil, nil, err
	}
	st, err := a.openStore(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if !o.ReadOnly {
		if err := installProjections(ctx, st.Store, set); err != nil {
			st.Close()
			return nil, nil, err
		}
	}
	return st, set, nil
}

// installTries is the number of attempts to install projections while the database is busy or drops
// the connection because this process is slow.
const installTries = 5

// installProjections makes missing tables of the projections and prepares each statement against
// them. An error names the file and line at fault.
func installProjections(ctx context.Context, st *store.Store, set *projection.Set) error {
	var err error
	for range installTries {
		if err = runs.Install(ctx, st, set); !errors.Is(err, outbox.ErrBusy) || ctx.Err() != nil {
			break
		}
	}
	if refusal, ok := errors.AsType[*outbox.Refusal](err); ok {
		return outbox.Setup("%s; if the file is correct, the tables were created by another version of it", refusal.Detail)
	}
	return err
}

// command returns a command given on the command line, by the operating system's user.
func command(reason string) outbox.Command {
	return outbox.Command{By: outbox.Operator{Name: osUser(), Via: "cli", Auth: outbox.AuthOS, Role: outbox.RoleAdmin}, Reason: reason}
}

func osUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid-" + strconv.Itoa(os.Getuid())
}
