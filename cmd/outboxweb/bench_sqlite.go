package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// sqliteGround is a run's own directory.
type sqliteGround struct {
	dir  string
	made int // pairs of files
}

func newSQLiteGround(dir, journal string) (*sqliteGround, error) {
	if dir == "" {
		dir = filepath.Dir(strings.TrimPrefix(journal, "sqlite:"))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, usagef("--dir: cannot create %s: %v", dir, outbox.Cause(err))
	}
	temp, err := os.MkdirTemp(dir, "outboxweb-bench-")
	if err != nil {
		return nil, usagef("--dir: cannot write to %s: %v", dir, outbox.Cause(err))
	}
	return &sqliteGround{dir: temp}, nil
}

func (g *sqliteGround) dialect() string { return "sqlite" }

func (g *sqliteGround) plan() benchPlan {
	return benchPlan{callers: []int{1, 32}, drains: []drainPlan{
		{"drain_1x100k", oneLong, 1, 2},
		{"drain_100x1k", hundred, 1, 2},
		{"drain_10000x10", manyShort, 1, 2},
	}}
}

func (g *sqliteGround) durability(ctx context.Context, r *benchResult) (err error) {
	r.Dir = filepath.Dir(g.dir)
	r.FsyncPerSecond, err = fsyncRate(ctx, g.dir)
	return err
}

// fsyncRate returns how many durable writes of 4 KiB per second this disk manages.
func fsyncRate(ctx context.Context, dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, fmt.Errorf("measure fsync: %w", err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	start, n := time.Now(), 0
	for time.Since(start) < time.Second && ctx.Err() == nil {
		if _, err := f.WriteAt(block, int64(n%1024)*4096); err != nil {
			return 0, fmt.Errorf("measure fsync: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("measure fsync: %w", err)
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), ctx.Err()
}

func (g *sqliteGround) fresh(context.Context) (databases, error) {
	g.made++
	name := filepath.Join(g.dir, strconv.Itoa(g.made))
	return databases{g.made, "sqlite:" + name + "-journal.db", "sqlite:" + name + "-projections.db"}, nil
}

// remove leaves files that it cannot remove to close.
func (g *sqliteGround) remove(_ context.Context, d databases) error {
	for _, url := range []string{d.journal, d.projections} {
		file := strings.TrimPrefix(url, "sqlite:")
		for _, suffix := range []string{"", "-wal", "-shm"} {
			os.Remove(file + suffix)
		}
	}
	return nil
}

func (g *sqliteGround) close() error { return os.RemoveAll(g.dir) }
