package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"outboxweb/internal/metrics"
	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

//go:embed bench.sql
var benchSQL []byte

// benchProjection loads the projection that a drain applies: one upsert an
// event.
func benchProjection(dir string) (*projection.Set, error) {
	dir = filepath.Join(dir, "projections")
	if err := os.Mkdir(dir, 0o750); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "bench.sql"), benchSQL, 0o600); err != nil {
		return nil, err
	}
	return projection.Load("sqlite", dir)
}

// drain measures the worker on a backlog, and the bare driver on a copy of it.
func (b *bench) drain(ctx context.Context, s shape) (measurement, error) {
	name := fmt.Sprintf("drain-%d-%d", s.campaigns, s.events)
	if err := b.fill(ctx, name, s); err != nil {
		return measurement{}, fmt.Errorf("fill: %w", err)
	}
	defer b.remove(name)
	copied := name + "-bare"
	if err := b.copy(name, copied); err != nil {
		return measurement{}, err
	}
	defer b.remove(copied)
	took, err := b.drainByWorker(ctx, name, s)
	if err != nil {
		return measurement{}, err
	}
	bare, err := drainBare(ctx, b.path(copied, "journal"), b.path(copied, "projections"))
	if err != nil {
		return measurement{}, fmt.Errorf("bare driver: %w", err)
	}
	m := rate(s.total(), took)
	m.Bare = float64(s.total()) / bare.Seconds()
	m.Ratio = m.EventsPerSecond / m.Bare
	return m, nil
}

// fill writes the backlog, the campaigns' events interleaved as they are in
// a real journal.
func (b *bench) fill(ctx context.Context, name string, s shape) error {
	st, err := b.open(ctx, name)
	if err != nil {
		return err
	}
	bar := b.app.progress("fill")
	defer bar.end()
	const size = 1000
	batch := make([]outbox.Event, 0, size)
	for n := 0; n < s.total(); n++ {
		batch = append(batch, benchEvent(fmt.Sprintf("c-%d", n%s.campaigns), n/s.campaigns))
		if len(batch) < size && n+1 < s.total() {
			continue
		}
		if _, err := st.Append(ctx, store.Append{Events: batch}); err != nil {
			return errors.Join(err, st.Close())
		}
		batch = batch[:0]
		bar.set(int64(n+1), int64(s.total()))
	}
	return st.Close()
}

// drainByWorker runs a worker until no row is left and returns how long that
// took, from its start.
func (b *bench) drainByWorker(ctx context.Context, name string, s shape) (took time.Duration, err error) {
	st, err := b.open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := installProjections(ctx, st, b.set); err != nil {
		return 0, err
	}
	w := worker.New(worker.Config{Store: st, Set: b.set, Mode: outbox.ModeOutbox, BatchSize: 1000, PollInterval: 100 * time.Millisecond,
		Lease: 30 * time.Second, EventTimeout: 10 * time.Second, Build: version,
		Metrics: metrics.New(st.Summary), Logger: slog.New(slog.DiscardHandler)})
	st.OnWork(w.Wake)
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- w.Run(running) }()
	err = untilDrained(ctx, st, ended)
	took = time.Since(start)
	stop()
	if err == nil {
		err = <-ended
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return 0, err
	}
	return took, nil
}

// untilDrained waits until the outbox is empty. A dead or failed row ends it:
// a benchmark must not measure failures.
func untilDrained(ctx context.Context, st *store.Store, ended <-chan error) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return errors.Join(errors.New("the worker stopped before the backlog was drained"), err)
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		page, err := st.Rows(ctx, outbox.RowFilter{Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Items) == 0 && page.NextCursor == nil {
			return nil
		}
		if len(page.Items) > 0 && page.Items[0].LastError != "" {
			return fmt.Errorf("an event could not be applied: %s", page.Items[0].LastError)
		}
	}
}

// copy copies closed databases.
func (b *bench) copy(from, to string) error {
	for _, database := range []string{"journal", "projections"} {
		if err := copyFile(b.path(from, database), b.path(to, database)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	return errors.Join(out.Sync(), out.Close())
}

func (b *bench) remove(name string) {
	for _, database := range []string{"journal", "projections"} {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			os.Remove(b.path(name, database) + suffix)
		}
	}
}
