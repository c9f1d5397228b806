//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lab is the state of one comparison.
type lab struct {
	config
	began time.Time
	built time.Time // when measuring could begin
	log   io.Writer
	top   string // the work tree
	dir   string // everything temporary
	sides [2]*side
}

// The two sides.
const (
	base = iota
	current
)

// side is one of the two programs, with its databases.
type side struct {
	name     string // of its directory
	rev      string // for the table
	tree     string // its source
	dir      string
	binary   string
	pages    *server // without a worker, on the database of the pages
	appends  *server // without a worker, on an empty database
	names    *strings.Replacer
	overview time.Time // when the overview was last asked for
}

// progress prints the current step on stderr.
func (l *lab) progress(format string, args ...any) {
	fmt.Fprintf(l.log, "%4.0f s  %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}

// open finds both revisions, and makes a work tree of the older one.
func (l *lab) open(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		out, _, err := output(command(ctx, nil, "git", args...))
		return strings.TrimSpace(out), err
	}
	var err error
	if l.top, err = git("rev-parse", "--show-toplevel"); err != nil {
		return fmt.Errorf("%w: run it in a git checkout of outboxweb: %w", errUsage, err)
	}
	revision, err := git("rev-parse", "--verify", "--quiet", l.base+"^{commit}")
	if err != nil {
		return fmt.Errorf("%w: %q is no revision here; `git log --oneline` lists some, `git fetch` gets more", errUsage, l.base)
	}
	ours, err := git("rev-parse", "--short", "HEAD")
	if err != nil {
		return err
	}
	if changes, err := git("status", "--porcelain"); err != nil {
		return err
	} else if changes != "" {
		ours += "+changes"
	}
	if l.dir, err = os.MkdirTemp(inMemory(), "benchcompare-"); err != nil {
		return err
	}
	for i, s := range []side{{name: "base", rev: revision[:7], tree: filepath.Join(l.dir, "tree")}, {name: "current", rev: ours, tree: l.top}} {
		s.dir = filepath.Join(l.dir, s.name)
		s.binary = filepath.Join(s.dir, "outboxweb")
		l.sides[i] = &s
	}
	for _, s := range l.sides {
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			return err
		}
	}
	_, err = git("worktree", "add", "--detach", l.sides[base].tree, revision)
	return err
}

// inMemory is a directory in memory with 2 GB of space, where databases cost no disk time; empty if
// there is none.
func inMemory() string {
	const dir = "/dev/shm"
	var free syscall.Statfs_t
	if syscall.Statfs(dir, &free) != nil || free.Bavail*uint64(free.Bsize) < 2<<30 {
		return ""
	}
	return dir
}

// close ends the servers and removes everything temporary.
func (l *lab) close() error {
	if l.dir == "" {
		return nil
	}
	for _, s := range l.sides {
		for _, running := range []*server{s.pages, s.appends} {
			if running != nil {
				_ = running.stop(os.Kill) // it may have ended already
			}
		}
	}
	var err error
	if _, absent := os.Stat(l.sides[base].tree); absent == nil {
		_, _, err = output(command(context.Background(), nil, "git", "-C", l.top, "worktree", "remove", "--force", l.sides[base].tree))
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

// build builds both programs with the flags of the Makefile, each with a version
// of the same length.
func (l *lab) build(ctx context.Context) error {
	l.progress("building %s and %s, which takes minutes the first time", l.sides[base].rev, l.sides[current].rev)
	defer func() { l.built = time.Now() }()
	return l.both(func(s *side) error {
		build := command(ctx, nil, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=compared", "-o", s.binary, "./cmd/outboxweb")
		build.Dir = s.tree
		if _, _, err := output(build); err != nil {
			return fmt.Errorf("%s does not build: %w", s.rev, err)
		}
		return nil
	})
}

// both calls do for the two sides concurrently.
func (l *lab) both(do func(*side) error) error {
	var errs [len(l.sides)]error
	var sides sync.WaitGroup
	for i, s := range l.sides {
		sides.Go(func() { errs[i] = do(s) })
	}
	sides.Wait()
	return errors.Join(errs[:]...)
}

// prepare fills the required databases.
func (l *lab) prepare(ctx context.Context, suites []suite) error {
	for _, part := range suites {
		if part.prepare == nil || len(wanted([]suite{part})) == 0 {
			continue
		}
		l.progress("preparing %s", part.name)
		if err := l.both(func(s *side) error {
			if err := part.prepare(ctx, s); err != nil {
				return fmt.Errorf("prepare %s of %s: %w", part.name, s.rev, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// on serves databases of a side while fn sends requests, and then ends the server.
func (s *side) on(ctx context.Context, settings []string, how os.Signal, fn func(*server) error) error {
	running, err := serve(ctx, s.binary, settings)
	if err != nil {
		return err
	}
	err = fn(running)
	return errors.Join(err, running.stop(how))
}

// run runs a command of the side's program.
func (s *side) run(ctx context.Context, settings []string, input string, args ...string) (string, time.Duration, error) {
	cmd := command(ctx, settings, s.binary, args...)
	cmd.Stdin = strings.NewReader(input)
	return output(cmd)
}

// settings name the databases in a directory of the side. Background work is off: it would fall
// into one side's sample and not the other's.
func (s *side) settings(name string, more ...string) []string {
	dir := filepath.Join(s.dir, name)
	return append(more, "OUTBOXWEB_JOURNAL_DB=sqlite:"+dir+"/journal.db", "OUTBOXWEB_PROJECTIONS_DB=sqlite:"+dir+"/projections.db", "OUTBOXWEB_VERIFY_EVERY=0")
}

// copied copies the databases of a name, for one use.
func (s *side) copied(from, to string) error {
	to = filepath.Join(s.dir, to)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(filepath.Join(s.dir, from)))
}
