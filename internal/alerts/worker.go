package alerts

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Intervals of a Worker.
const (
	// Every is the time between two evaluations.
	Every = 15 * time.Second
	// lease is longer than a step may take.
	lease    = time.Minute
	stepTime = 45 * time.Second
)

// WorkerConfig configures a Worker. Alerts, Facts and ID are required.
type WorkerConfig struct {
	Alerts  *Alerts
	Facts   func(context.Context) (facts.Facts, error) // all but Moved
	ID      string                                     // of the process, in the lease
	Metrics *metrics.Metrics                           // nil means none
	Logger  *slog.Logger                               // nil means none
	Every   time.Duration                              // 0 means Every
}

// Worker evaluates the rules and sends messages. Several processes may run one; a lease lets one of
// them work at a time.
type Worker struct {
	WorkerConfig
	epoch int64 // of the lease
}

// NewWorker returns a Worker. Run starts it.
func NewWorker(c WorkerConfig) *Worker {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Every <= 0 {
		c.Every = Every
	}
	return &Worker{WorkerConfig: c}
}

// Run works until ctx ends, and releases the lease. Without receivers it returns at once.
func (w *Worker) Run(ctx context.Context) {
	if !w.Alerts.Configured() {
		return
	}
	loop.Loop{Name: "alerts", Step: w.Step, Interval: loop.Every(w.Every), Logger: w.Logger}.Run(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.DoneTime)
	defer cancel()
	_ = w.Alerts.write(ending, func(t *store.Tx) error { // otherwise it expires
		return store.AlertLease.Release(t.Tx, w.ID, w.epoch, `id = 1`)
	})
}

func (a *Alerts) write(ctx context.Context, fn func(*store.Tx) error) error {
	return a.core.Journal().Write(ctx, fn)
}

// errElsewhere means that another process has the lease.
var errElsewhere = errors.New("another process has the lease")

// Step claims or renews the lease, evaluates the rules, and sends what is due. It does nothing while
// another process has the lease.
func (w *Worker) Step(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime) // the lease outlasts the step
	defer cancel()
	if err := w.claim(ctx); err != nil {
		if errors.Is(err, errElsewhere) {
			err = nil
			if w.Metrics != nil {
				w.Metrics.AlertsFiring.Reset()
			}
		}
		return false, err
	}
	facts, err := w.Facts(ctx)
	if err == nil {
		err = w.evaluate(ctx, facts)
	}
	if errors.Is(err, errElsewhere) {
		return false, nil
	}
	return false, errors.Join(err, w.send(ctx))
}

func (w *Worker) claim(ctx context.Context) error {
	return w.Alerts.write(ctx, func(t *store.Tx) error {
		var err error
		if w.epoch, err = store.AlertLease.Take(t.Tx, w.ID, w.Alerts.core.Now(), lease.Microseconds(), `id = 1`); err == nil && w.epoch == 0 {
			err = errElsewhere
		}
		return err
	})
}

// evaluate applies the rules to the facts, in one transaction with the messages.
func (w *Worker) evaluate(ctx context.Context, facts facts.Facts) error {
	firing := map[string]int{}
	err := w.Alerts.write(ctx, func(t *store.Tx) error {
		clear(firing)
		e := evaluation{Worker: w, tx: t, micros: w.Alerts.core.Now(), firing: firing}
		e.now = sqldb.At(e.micros)
		return e.run(facts)
	})
	if err == nil && w.Metrics != nil {
		for _, rule := range w.Alerts.Rules {
			w.Metrics.AlertsFiring.WithLabelValues(rule.Name).Set(float64(firing[rule.Name]))
		}
	}
	return err
}

// sendAtOnce is how many messages a receiver gets in one step.
const sendAtOnce = 4

// send sends what is due, to all receivers at a time.
func (w *Worker) send(ctx context.Context) error {
	var sending sync.WaitGroup
	errs := make([]error, len(w.Alerts.Receivers))
	for i, r := range w.Alerts.Receivers {
		sending.Go(func() {
			for range sendAtOnce {
				sent, err := w.sendNext(ctx, r)
				if errs[i] = err; err != nil || !sent {
					return
				}
			}
		})
	}
	sending.Wait()
	return errors.Join(errs...)
}

// sendNext sends a receiver's next message, and reports whether there may be another. An error of
// the receiver is recorded, and is no error.
func (w *Worker) sendNext(ctx context.Context, r Receiver) (sent bool, err error) {
	due, err := w.Alerts.due(ctx, r.Name)
	if err != nil || len(due) == 0 || ctx.Err() != nil {
		return false, err
	}
	m := due[0].Message
	if len(due) > 1 {
		m = SumUp(due, w.Alerts.link)
	}
	failure := r.Send(ctx, m, w.Alerts.Version, sqldb.At(w.Alerts.core.Now()))
	if ctx.Err() != nil && failure != nil {
		return false, nil // cut short by the end of the step or the process, and sent again
	}
	outcome, text := "sent", ""
	if failure != nil {
		outcome, text = "failed", w.Alerts.Hide(failure.Error())
		w.Logger.Warn("an alert could not be sent; retrying", "receiver", r.Name, "message", m.ID, "error", text)
	}
	if w.Metrics != nil {
		w.Metrics.AlertMessages.WithLabelValues(r.Name, outcome).Inc()
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.DoneTime)
	defer cancel()
	return failure == nil, w.Alerts.recordSent(recording, r.Name, due, failure, text)
}
