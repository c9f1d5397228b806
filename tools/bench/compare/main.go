//go:build linux

// Command benchcompare measures the program of the work tree beside that of an older revision, in
// turns on the same machine, and prints the ratios of their costs.
//
//	make bench-compare BASE=main
//
// It treats both as black boxes, as their users do: HTTP, commands, processes. Only Claim is
// measured by a Go benchmark, which is copied into the older revision. Exit codes: 0 nothing is
// slower, 1 something is or it failed, 2 wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Time limits of everything but building. Turns end when the next would pass turnsUntil, turns of
// undecided rows alone when one would pass extraUntil.
const (
	turnsUntil = 4 * time.Minute
	extraUntil = 4*time.Minute + 40*time.Second
)

// errUsage is wrong usage: a flag, a revision or a directory.
var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// config holds the flags' values.
type config struct {
	base  string
	turns int
	only  string
}

func (c config) wants(row string) bool { return strings.Contains(row, c.only) }

func parse(args []string, errs io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("benchcompare", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&c.base, "base", "", "the `revision` to compare the work tree with")
	flags.IntVar(&c.turns, "turns", 9, "how often each row is measured on either side, if time allows")
	flags.StringVar(&c.only, "only", "", "measure only the rows whose name contains this `text`")
	if err := flags.Parse(args); err != nil {
		return c, fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case flags.NArg() > 0:
		return c, fmt.Errorf("%w: unexpected argument %q; the revision is given as -base REV", errUsage, flags.Arg(0))
	case c.base == "":
		return c, fmt.Errorf("%w: name the revision to compare with: make bench-compare BASE=main, or -base main", errUsage)
	case strings.HasPrefix(c.base, "-"):
		return c, fmt.Errorf("%w: -base %q is not a revision", errUsage, c.base)
	case c.turns < minTurns:
		return c, fmt.Errorf("%w: -turns must be %d or more; fewer pairs cannot show a difference beyond doubt", errUsage, minTurns)
	}
	return c, nil
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	c, err := parse(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	slower := false
	if err == nil {
		slower, err = compare(ctx, c, out, errs)
	}
	switch {
	case err == nil && !slower:
		return 0
	case err == nil:
		return 1
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	fmt.Fprintln(errs, "benchcompare:", err)
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// compare builds, measures and prints; it reports whether some row is slower.
func compare(ctx context.Context, c config, out, errs io.Writer) (slower bool, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends all remaining processes
	l := &lab{config: c, began: time.Now(), log: errs}
	defer func() {
		cancel()
		err = errors.Join(err, l.close())
	}()
	suites := l.suites()
	if len(wanted(suites)) == 0 {
		return false, fmt.Errorf("%w: no row's name contains %q; without ONLY, or -only, the table lists all", errUsage, c.only)
	}
	if err := l.open(ctx); err != nil {
		return false, err
	}
	if err := l.build(ctx); err != nil {
		return false, err
	}
	if err := l.prepare(ctx, suites); err != nil {
		return false, err
	}
	turns, err := l.measure(ctx, wanted(suites))
	if err != nil {
		return false, err
	}
	return l.print(out, wanted(suites), turns)
}
