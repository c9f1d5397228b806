// Command outboxweb guarantees that projections follow a journal, and is the
// console from which operators watch and repair it.
//
// This package alone reads the command line and the environment. Exit codes:
// 0 done, 1 failed or a check found problems, 2 wrong usage or configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "dev"

// revision returns the source revision recorded by the build, or "".
func revision() string {
	info, known := debug.ReadBuildInfo()
	if !known {
		return ""
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["vcs.modified"] == "true" {
		return settings["vcs.revision"] + "-dirty"
	}
	return settings["vcs.revision"]
}

const (
	exitDone   = 0
	exitFailed = 1 // the command failed, or a check found problems
	exitUsage  = 2 // wrong usage or configuration
)

// errFound ends a command whose output already says what is wrong.
var errFound = errors.New("problems found")

// problems is errFound if any are found.
func problems(found bool) error {
	if found {
		return errFound
	}
	return nil
}

func main() { os.Exit(runMain()) }

// runMain runs the command line. The first SIGINT or SIGTERM asks the command
// to finish; a second one ends the process at once.
func runMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	signal.Ignore(syscall.SIGXFSZ) // reaching the file size limit is then an error of the write
	return run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}

// streams holds a command's input and outputs: data goes to out, everything else to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// run parses args, runs the command and returns the exit code. Control characters are escaped in
// its output.
func run(ctx context.Context, args []string, std streams) int {
	var c cli
	parser := newParser(&c, std) // help asks the terminal for its width
	if len(args) > 1 && args[0] == asksCompletion {
		complete(std.out, parser.Model.Node, args[1:])
		return exitDone
	}
	std.out, std.err = visible{std.out}, visible{std.err}
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(std.err, "outboxweb:", usageSentence(err))
		return exitUsage
	}
	a := &app{streams: std, Common: c.Common}
	a.warnOfVariables(parsed, os.Environ())
	err = a.execute(ctx, parsed)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errFound):
		return exitFailed
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	err = sqldb.Forbidden(err)
	if c.LogFormat == "json" {
		a.logger().Error("failed", "error", err, "exit_code", exitCode(err))
	} else {
		fmt.Fprintln(std.err, "outboxweb:", err)
	}
	return exitCode(err)
}

// exitCode is 2 if the usage, the configuration, a file or a database has to be fixed before the
// command can work, and 1 for every other error.
func exitCode(err error) int {
	if _, wrong := errors.AsType[*usageError](err); wrong || errors.Is(err, event.ErrSetup) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a wrong flag, argument or configuration; its text names the
// flag, file or line.
type usageError struct{ text string }

func (u *usageError) Error() string { return u.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// asUsage turns a refused flag value into wrong usage of that flag.
func asUsage(flag string, err error) error { return usagef("%s: %s", flag, refusalText(err)) }

// refusalText returns an error's sentence for the user.
func refusalText(err error) string {
	if refusal, ok := errors.AsType[*event.Refusal](err); ok {
		return refusal.Detail
	}
	return err.Error()
}
