// Package engine puts the parts of one process together: a store with the features that work on it,
// the loops that run beside each other, and the handler that answers requests. The command and the
// Go package outboxweb are both built on it.
package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/tokens"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// Engine is a store with the packages that work on it.
type Engine struct {
	*outbox.Queue
	*samples.Samples
	Maintenance *maintenance.Maintenance
	Search      *search.Search
	Tokens      *tokens.Tokens
	Operations  *operations.Operations
	Runs        *runs.Runs
	Publishing  *publishing.Progress
	Intake      *intake.Intake
	Facts       *facts.Reader
}

// Wire builds the engine around a store that is not in use yet.
func Wire(st *store.Store) *Engine {
	kept, q := samples.New(st), outbox.New(st)
	e := &Engine{Queue: q, Samples: kept, Maintenance: maintenance.New(q), Tokens: tokens.New(st), Operations: operations.New(q, kept), Runs: runs.New(q), Publishing: publishing.NewProgress(st), Intake: intake.New(st)}
	e.Search = search.New(st, e.Publishing.Publisher)
	e.Facts = &facts.Reader{Store: st, Operations: e.Operations, Runs: e.Runs, Publishing: e.Publishing, Intake: e.Intake}
	e.Facts.Begin()
	return e
}

// WorkOnRuns lets a worker's process execute runs as well.
func (e *Engine) WorkOnRuns(w *worker.Worker, c runs.WorkerConfig) {
	c.Runs, c.Set, c.Worker, c.Logger, c.Applying, c.Failure = e.Runs, w.Set, w.Name(), w.Logger, w.Applying, w.Failure
	w.Beside = append(w.Beside, runs.NewWorker(c).Work)
}

// ValidToken finds an API token by the hash of its text, for auth.Config, and records its use.
func (e *Engine) ValidToken(ctx context.Context, hash string) (operator.Token, error) {
	token, err := e.Tokens.TokenByHash(ctx, hash)
	if err == nil && token.State(time.Now()) == "valid" {
		e.Tokens.RecordTokenUse(ctx, token)
	}
	return token, err
}

// LoadProjections loads projection files for a projections database, and checks them before any
// database is touched. An error names the file and line at fault.
func LoadProjections(ctx context.Context, database string, sources ...string) (*projection.Set, error) {
	set, err := projection.Check(ctx, sources...)
	if dialect := DialectOf(database); err == nil && dialect != "sqlite" {
		set, err = projection.Load(dialect, sources...)
	}
	return set, err
}

// DialectOf returns the dialect of the database that a URL leads to: sqlite or postgres.
func DialectOf(url string) string {
	if strings.HasPrefix(url, "postgres") {
		return "postgres"
	}
	return "sqlite"
}

// RegisterAuditOnly registers event types that are journalled and never applied.
func (e *Engine) RegisterAuditOnly(ctx context.Context, types []string) error {
	if len(types) == 0 {
		return nil
	}
	intents := make(map[string]event.Intent, len(types))
	for _, eventType := range types {
		intents[eventType] = event.IntentAuditOnly
	}
	return e.RegisterEventTypes(ctx, intents)
}

// installTries is the number of attempts to install projections while the database is busy or drops
// the connection because this process is slow.
const installTries = 5

// Install examines the databases, makes missing tables of the projections and prepares each statement
// against them. An error names the file and line at fault.
func Install(ctx context.Context, st *store.Store, set *projection.Set) error {
	err := st.Examine(ctx)
	if errors.Is(err, event.ErrSetup) {
		return err
	}
	for range installTries {
		if err = runs.Install(ctx, st, set); !errors.Is(err, event.ErrBusy) || ctx.Err() != nil {
			break
		}
	}
	if refusal, ok := errors.AsType[*event.Refusal](err); ok {
		return event.Setup("%s; if the file is correct, the tables were created by another version of it, or changed since: drop them, and the next start makes them again and fills them", refusal.Detail)
	}
	return err
}

// Alerts are the alerts of an engine under the settings; their errors lack what the builtin rules of
// redaction hide.
func (e *Engine) Alerts(settings alerts.Settings, version string, link alerts.Link) *alerts.Alerts {
	return alerts.New(e.Store, alerts.Options{Settings: settings, Version: version, Link: link, Hide: redact.Builtin().Text})
}
