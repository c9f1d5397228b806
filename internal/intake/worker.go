package intake

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Intervals of a Worker.
const (
	lookEvery    = time.Second      // at most so often the backlog is counted and recorded
	lookLatest   = 10 * time.Second // and at least so often
	longestPause = 30 * time.Second // after errors of a source's database
)

// WorkerConfig configures a Worker. Intake and ID are required.
type WorkerConfig struct {
	Intake  *Intake
	ID      string // of the process, in leases
	Metrics *metrics.Metrics
	Logger  *slog.Logger // nil means none
	Lease   time.Duration
	// MaxPayload is the limit of the journal, in bytes; 0 means event.DefaultMaxPayload.
	MaxPayload int
	// Inline applies a campaign's new events at once, in mode inline_apply_only; nil otherwise.
	Inline func(ctx context.Context, campaign string) error
}

// Worker moves the rows of the sources of its Intake. Several processes may run one; a lease lets one
// of them at a time work on a source.
type Worker struct {
	WorkerConfig
	drains []*drain
}

// NewWorker returns a Worker. Run starts it.
func NewWorker(c WorkerConfig) *Worker {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Lease <= 0 {
		c.Lease = event.DefaultLease
	}
	if c.MaxPayload <= 0 {
		c.MaxPayload = event.DefaultMaxPayload
	}
	w := &Worker{WorkerConfig: c}
	for _, s := range c.Intake.Settings.Sources {
		w.drains = append(w.drains, &drain{Worker: w, table: &table{Source: s, maxPayload: c.MaxPayload, limit: s.batch, now: c.Intake.core.Now}, wake: loop.NewSignal(1),
			lease: lease{source: s.Name, owner: c.ID}, log: c.Logger.With("source", s.Name)})
	}
	return w
}

// Run works until ctx ends, and releases its leases. Without sources, or on a nil Worker, it returns
// at once.
func (w *Worker) Run(ctx context.Context) {
	if w == nil {
		return
	}
	var running sync.WaitGroup
	for _, d := range w.drains {
		running.Go(func() { d.run(ctx) })
	}
	running.Wait()
}

// Wake lets the worker look for rejected rows that an operator wants retried or discarded. A nil
// Worker does nothing.
func (w *Worker) Wake() {
	if w == nil {
		return
	}
	for _, d := range w.drains {
		d.wake.Raise()
	}
}

// Step moves what each source has now, as far as this process may. It is for tests and commands that
// do not run the loop.
func (w *Worker) Step(ctx context.Context) error {
	var all error
	for _, d := range w.drains {
		for {
			more, err := d.step(ctx)
			if all = errors.Join(all, err); !more || err != nil {
				break
			}
		}
		if d.failures > 0 {
			all = errors.Join(all, d.failure)
		}
	}
	return all
}

// Close releases the leases and closes the connections. Run does so itself.
func (w *Worker) Close() {
	for _, d := range w.drains {
		d.close(context.Background())
	}
}

// drain moves the rows of one source. It belongs to one goroutine.
type drain struct {
	*Worker
	*table
	lease lease
	wake  loop.Signal
	log   *slog.Logger
	quiet func() // stops listening; nil while it does not

	failures int   // of the source's database, in a row
	failure  error // the last one

	onRead func() // in tests; nil otherwise

	recorded time.Time // when the backlog was
	backlog  backlog   // as recorded
}

func (d *drain) run(ctx context.Context) {
	loop.Loop{Name: "intake of source " + d.Source.Name, Step: d.step, Wake: d.wake, Logger: d.Logger, Interval: d.interval}.Run(ctx)
	d.close(ctx)
}

func (d *drain) close(ctx context.Context) {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.DoneTime)
	defer cancel()
	_ = d.drop(ending) // otherwise it expires
}

// drop releases the lease and closes the connections.
func (d *drain) drop(ctx context.Context) error {
	if d.quiet != nil {
		d.quiet()
		d.quiet = nil
	}
	d.table.close()
	return d.Intake.release(ctx, &d.lease)
}

// interval is the poll interval; after errors of the source's database it doubles with each.
func (d *drain) interval(ctx context.Context) time.Duration {
	pause := loop.Every(d.poll)(ctx)
	if d.failures > 0 {
		pause = max(pause, min(longestPause, time.Second<<min(d.failures-1, 5)))
	}
	return pause
}

// step moves one batch, unless another process has the source. It reports whether there may be more.
// Errors of the source's database are recorded, and are no error.
func (d *drain) step(ctx context.Context) (more bool, err error) {
	held, err := d.hold(ctx)
	if err != nil || !held {
		return false, err
	}
	more, err = d.batch(ctx)
	from, ofDatabase := errors.AsType[sourceError](err)
	switch {
	case ctx.Err() != nil:
		return false, nil
	case ofDatabase:
		return false, d.failed(ctx, from)
	case errors.Is(err, event.ErrLeaseLost):
		d.log.Warn("another process has taken over the source")
		d.lease.epoch = 0
		return false, d.drop(ctx)
	}
	return more, err
}

// hold reports whether this process has the lease for long enough, and claims it if it can.
func (d *drain) hold(ctx context.Context) (bool, error) {
	now := d.Intake.core.Now()
	if left := d.lease.expires - now; d.lease.epoch != 0 && left > d.Lease.Microseconds()*2/3 && left <= d.Lease.Microseconds() {
		return true, nil
	}
	had := d.lease.epoch != 0
	held, err := d.Intake.claim(ctx, &d.lease, d.Place, d.Lease)
	if err != nil {
		return false, err
	}
	if held && !had {
		d.recorded = time.Time{}
	}
	if held && d.quiet == nil { // a claim that failed has left the listener
		d.quiet = d.table.listen(context.WithoutCancel(ctx), d.wake.Raise)
	}
	if !held && had {
		return false, d.drop(ctx)
	}
	return held, nil
}

// sourceError is an error of the source's database.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

func ofSource(err error) error {
	if err == nil {
		return nil
	}
	return sourceError{err}
}

// failed records that the source's database could not be used, and lets another process try.
func (d *drain) failed(ctx context.Context, err sourceError) error {
	var other, known foreign
	if refused := errors.As(err, &other); d.failures == 0 || refused && !errors.As(d.failure, &known) {
		d.log.Warn("the source cannot be read; retrying", "error", err.error)
	}
	d.failures++
	d.failure = err
	if d.Metrics != nil {
		d.Metrics.IntakeErrors.WithLabelValues(d.Source.Name).Inc()
	}
	recorded := d.Intake.record(ctx, &d.lease, seen{failure: event.Cause(err).Error(), owner: other.owner}, d.lease.expires)
	if errors.Is(recorded, event.ErrLeaseLost) {
		recorded = nil
	}
	return errors.Join(recorded, d.drop(ctx))
}

// batch reads rows, journals them, and deletes them.
func (d *drain) batch(ctx context.Context) (more bool, err error) {
	if err := d.belongs(ctx); err != nil {
		return false, ofSource(err)
	}
	defer func() {
		if ended := d.table.end(ctx); err == nil {
			err = ofSource(ended)
		}
	}()
	if err := d.checkKept(ctx); err != nil {
		return false, err
	}
	waiting, err := d.Intake.pending(ctx, d.Source.Name)
	if err != nil {
		return false, err
	}
	if waiting, err = d.settle(ctx, waiting); err != nil {
		return false, err
	}
	if len(waiting) >= maxRejections {
		return false, ofSource(event.Conflict("%s are rejected: fix the cause, then retry or discard them", event.Count(maxRejections, "row", "rows")))
	}
	var campaigns, keys []string
	retrying := map[string]bool{}
	for _, p := range waiting {
		if retrying[p.key] = p.status == inbound.IntakeRetrying; !retrying[p.key] {
			campaigns, keys = append(campaigns, p.campaign), append(keys, p.key)
		}
	}
	rows, more, err := d.table.read(ctx, campaigns, keys)
	if err != nil {
		return false, ofSource(err)
	}
	if d.onRead != nil {
		d.onRead()
	}
	if len(rows) > 0 {
		j := &journalling{drain: d, ctx: ctx, retrying: retrying, held: map[string]bool{}}
		if err := j.run(rows); err != nil {
			return false, err
		}
	}
	if err := d.expire(ctx); err != nil {
		return false, err
	}
	if err := d.table.end(ctx); err != nil {
		return false, ofSource(err)
	}
	if d.failures > 0 {
		d.log.Info("the source's database can be used again")
		d.failures, d.recorded = 0, time.Time{}
	}
	return more, d.look(ctx)
}

// belongs returns foreign if the source belongs to another journal, and takes it from there if an
// operator has handed it over.
func (d *drain) belongs(ctx context.Context) error {
	d.table.journal = d.lease.journal
	o, err := d.table.begin(ctx)
	if err == nil && o.journal != d.lease.journal && o.since == d.lease.handedOver {
		if err = d.table.end(ctx); err == nil {
			err = d.table.take(ctx, o)
		}
		if err == nil {
			o, err = d.table.begin(ctx)
		}
		if err == nil && o.journal == d.lease.journal {
			d.log.Warn("the source was handed over to this journal", "journal", o.journal)
		}
	}
	if err == nil && o.journal != d.lease.journal {
		return errors.Join(d.table.end(ctx), foreign{o, d.Source.Name, d.lease.journal})
	}
	return err
}

// settle does what operators decided about rejected rows, and returns those that are left.
func (d *drain) settle(ctx context.Context, waiting []pending) (left []pending, err error) {
	for _, p := range waiting {
		done := false
		switch p.status {
		case inbound.IntakeRetrying:
			done, err = d.forgetGone(ctx, p)
		case inbound.IntakeDiscarding:
			done, err = true, d.discard(ctx, p)
		}
		if err != nil {
			return nil, err
		}
		if !done {
			left = append(left, p)
		}
	}
	return left, nil
}

// forgetGone deletes the rejection of a row that is no longer in its table.
func (d *drain) forgetGone(ctx context.Context, p pending) (gone bool, err error) {
	_, found, err := d.table.one(ctx, p.key)
	if err != nil || found {
		return false, ofSource(err)
	}
	return true, d.write(ctx, func(t *store.Tx) error {
		_, err := t.Exec(deleteRejection, d.Source.Name, p.key)
		return err
	})
}

// discard deletes a row from its table. Its content is kept as it was then.
func (d *drain) discard(ctx context.Context, p pending) error {
	r, found, err := d.table.one(ctx, p.key)
	if err != nil {
		return ofSource(err)
	}
	if found {
		content, bytes, err := r.content()
		if err == nil {
			err = d.write(ctx, func(t *store.Tx) error {
				_, err := t.Exec(keepContent, d.Source.Name, p.id, content, bytes)
				return err
			})
		}
		if err == nil {
			err = ofSource(d.table.remove(ctx, []row{r}))
		}
		if err != nil {
			return err
		}
	}
	return d.write(ctx, func(t *store.Tx) error {
		_, err := t.Exec(markDiscarded, d.Source.Name, p.id)
		return err
	})
}

// write runs fn in a transaction of the journal, if this process has the lease.
func (d *drain) write(ctx context.Context, fn func(*store.Tx) error) error {
	err := d.Intake.core.Journal().Write(ctx, func(t *store.Tx) error {
		if err := d.lease.held(t, 0, d.Intake.core.Now()); err != nil {
			return err
		}
		return fn(t)
	})
	d.Intake.states.Forget()
	return err
}

// look counts what waits and records it: at most once a second, when it has changed, and otherwise
// every ten seconds.
func (d *drain) look(ctx context.Context) error {
	since := time.Since(d.recorded)
	if since < lookEvery {
		return nil
	}
	b, err := d.table.look(ctx)
	if err != nil {
		return ofSource(err)
	}
	if b.at.IsZero() && b.first != "" { // the table does not say when
		if b.at = sqldb.At(d.Intake.core.Now()); b.first == d.backlog.first {
			b.at = d.backlog.at
		}
	}
	if b == d.backlog && since < lookLatest {
		return nil
	}
	expires := d.Intake.core.Now() + d.Lease.Microseconds()
	if err := d.Intake.record(ctx, &d.lease, seen{waiting: b.rows, oldest: b.at}, expires); err != nil {
		return err
	}
	d.recorded, d.backlog = time.Now(), b
	return nil
}

// journalling moves the rows of one read.
type journalling struct {
	*drain
	ctx      context.Context
	retrying map[string]bool // by key: rows that were rejected before
	held     map[string]bool // by campaign: a row of this read is rejected
	rejected []rejection
	done     []row // journalled, and to be deleted
}

// appendAtOnce is how many events are appended in one transaction.
const appendAtOnce = 1000

func (j *journalling) run(rows []row) error {
	err := j.append(rows)
	// The journal that has these rows may be another one by now. Unless that is known they stay: kept,
	// they would hide that older ones are missing.
	if unknown := j.checkKept(j.ctx); unknown != nil {
		return cmp.Or(err, unknown)
	}
	// Rows that were journalled are deleted even when a later one failed; otherwise they would be
	// read again.
	if removed := ofSource(j.table.remove(j.ctx, j.done)); err == nil {
		err = removed
	}
	if err == nil {
		err = j.Intake.reject(j.ctx, &j.lease, j.rejected)
	}
	return err
}

func (j *journalling) append(rows []row) error {
	var good []row
	for i := range rows {
		if r := &rows[i]; !j.held[r.event.CampaignID] {
			if err := r.normalize(j.MaxPayload); err != nil {
				j.reject(*r, err)
				continue
			}
			good = append(good, *r)
		}
	}
	for chunk := range slices.Chunk(good, appendAtOnce) {
		if err := j.appendAll(chunk); err != nil {
			return err
		}
	}
	j.applyInline()
	return nil
}

// reject notes that a row cannot be journalled, which blocks its campaign.
func (j *journalling) reject(r row, err error) {
	j.held[r.event.CampaignID] = true
	j.rejected = append(j.rejected, rejection{r, err.Error()})
	j.log.Warn("a row cannot be journalled and blocks its campaign", "row", r.key, "campaign", r.event.CampaignID, "event_id", r.event.EventID, "reason", err)
}

// appendAll appends rows, except those that the journal refuses and the later ones of their
// campaigns.
func (j *journalling) appendAll(rows []row) error {
	for {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return j.held[r.event.CampaignID] })
		if len(rows) == 0 {
			return nil
		}
		err := j.appendOnce(rows)
		refusal, ok := errors.AsType[*event.Refusal](err)
		if !ok || !rejects(refusal) {
			return err
		}
		// The events before it were not refused, but nothing was appended.
		if err := j.appendAll(rows[:refusal.Index]); err != nil {
			return err
		}
		if r := rows[refusal.Index]; !j.held[r.event.CampaignID] {
			j.reject(r, r.explain(refusal))
		}
		rows = rows[refusal.Index+1:]
	}
}

// rejects reports whether a refusal is about an event, not about the journal.
func rejects(r *event.Refusal) bool {
	return errors.Is(r, event.ErrInvalid) || errors.Is(r, event.ErrTooLarge) || errors.Is(r, event.ErrConflict)
}

// appendOnce appends rows in one transaction, in which this process must have the lease. A row that
// was inserted again may have another occurred_at, which is the time of the insert by default.
func (j *journalling) appendOnce(rows []row) error {
	events := make([]event.Event, len(rows))
	var again []string
	for i := range rows {
		events[i] = rows[i].event
		if j.retrying[rows[i].key] {
			again = append(again, rows[i].key)
		}
	}
	_, err := j.Intake.core.Append(j.ctx, store.Append{Events: events, AnyTime: true, Then: func(t *store.Tx, result []store.Appended) error {
		for _, key := range again {
			if _, err := t.Exec(deleteRejection, j.Source.Name, key); err != nil {
				return err
			}
		}
		return j.lease.held(t, int64(created(result)), j.Intake.core.Now())
	}})
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].journalled = true
	}
	j.done = append(j.done, rows...)
	if j.Metrics != nil {
		j.Metrics.IntakeRows.WithLabelValues(j.Source.Name).Add(float64(len(rows)))
	}
	if len(again) > 0 {
		j.Intake.states.Forget()
	}
	return nil
}

// created is how many events an append made.
func created(result []store.Appended) (n int) {
	for _, r := range result {
		if !r.Existed {
			n++
		}
	}
	return n
}

// applyInline applies what was appended, where that is the request path's task.
func (j *journalling) applyInline() {
	if j.Inline == nil {
		return
	}
	applied := map[string]bool{}
	for i := range j.done {
		if id := j.done[i].event.CampaignID; !applied[id] {
			applied[id] = true
			if err := j.Inline(j.ctx, id); err != nil && j.ctx.Err() == nil {
				j.log.Warn("events of a source could not be applied at once; a worker will", "campaign", id, "error", err)
			}
		}
	}
}
