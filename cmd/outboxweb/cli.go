package main

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// cli is the command line: kong reads it from the tags. The common flags and those of serve have an
// environment variable OUTBOXWEB_NAME; flag beats environment beats file beats default. The
// arguments of a single command come from the command line only.
type cli struct {
	Common

	Serve        serveCmd       `cmd:"" help:"Run the dashboard, the API and the embedded worker."`
	Append       appendCmd      `cmd:"" help:"Append events from JSON Lines to the journal."`
	Sample       sampleCmd      `cmd:"" help:"Write a realistic sample journal as JSON Lines."`
	Report       reportCmd      `cmd:"" help:"Show counts by status, the oldest row and the lag; with a filter, the rows."`
	Requeue      requeueCmd     `cmd:"" help:"Requeue one dead row, or many with --dead."`
	Retry        retryCmd       `cmd:"" help:"Retry a failed head now."`
	kong.Plugins                // of the actions without a group
	Operations   operationsCmd  `cmd:"" help:"List, show, cancel or acknowledge operations (bulk requeues)."`
	Campaigns    campaignsCmd   `cmd:"" help:"List, pause, resume or replay campaigns."`
	Events       eventsCmd      `cmd:"" help:"Search the events of all campaigns."`
	Failures     failuresCmd    `cmd:"" help:"List failed and dead rows by error, and annotate errors."`
	Fixture      fixtureCmd     `cmd:"" help:"Print a failing event as a file, with its campaign's events up to it and the projections, for reproduce."`
	Reproduce    reproduceCmd   `cmd:"" help:"See whether the event of a fixture's file fails here as it did there, without any server; exit 1 if not."`
	Find         findCmd        `cmd:"" help:"Find whatever a text names: a campaign, event, entity, request, run, cause, publisher or actor."`
	Gaps         gapsCmd        `cmd:"" help:"List campaigns with events that have neither been applied nor have a row."`
	Digest       digestCmd      `cmd:"" help:"Print the digests of a campaign's projections."`
	Runs         runsCmd        `cmd:"" help:"Start, list, show, cancel or resume replays, verifies and rebuilds."`
	Rehearse     rehearseCmd    `cmd:"" help:"Try changed projection files on copies of blocked campaigns; exit 1 unless all would pass. If none is blocked, compare healthy ones."`
	Verify       verifyCmd      `cmd:"" help:"Compare live rows with the journal; exit 1 on drift."`
	Check        checkCmd       `cmd:"" help:"Check both databases against the invariants."`
	Projections  projectionsCmd `cmd:"" help:"List, check, pause or resume projections."`
	Alerts       alertsCmd      `cmd:"" help:"Show alerts, send a test message, and mute rules."`
	Intake       intakeCmd      `cmd:"" help:"Show sources of events and their rejected rows, retry or discard one, hand a source over, and print the table's schema."`
	Publishers   publishersCmd  `cmd:"" help:"List and control publishers: pause, resume, reset, seek, skip, test."`
	Token        tokenCmd       `cmd:"" help:"Create, list and revoke API tokens."`
	Migrate      migrateCmd     `cmd:"" help:"Migrate both databases to this program's version."`
	Backup       backupCmd      `cmd:"" help:"Back up both databases into a directory, online."`
	Restore      restoreCmd     `cmd:"" help:"Restore a backup into databases that do not exist yet."`
	Bench        benchCmd       `cmd:"" help:"Benchmark append and drain on your disk or your PostgreSQL server."`
	Health       healthCmd      `cmd:"" help:"Ask a running server whether it is ready; exit 1 if it is not. For probes."`
	Completion   completionCmd  `cmd:"" help:"Print completions for bash, zsh or fish."`
	Version      versionCmd     `cmd:"" help:"Print the versions of outboxweb, Go and SQLite."`
}

// Common holds the flags that every command takes.
type Common struct {
	JournalDB       string                `name:"journal-db" secret:"" placeholder:"URL" default:"sqlite:data/journal.db" group:"common" help:"The journal database: sqlite:PATH or postgres://…"`
	ProjectionsDB   string                `name:"projections-db" secret:"" placeholder:"URL" default:"sqlite:data/projections.db" group:"common" help:"The projections database: sqlite:PATH or postgres://…"`
	ProjectionFiles []string              `name:"projections" placeholder:"DIR" default:"builtin:campaigns" group:"common" help:"Projection definitions: a directory, or builtin:NAME. Repeatable."`
	Config          fileFlag              `name:"config" placeholder:"FILE" group:"common" help:"A YAML file with values for the common flags and the flags of serve, and with topics, publishers, alerts and sources."`
	LogFormat       string                `name:"log-format" enum:"text,json" default:"text" group:"common" help:"Log format on stderr: text or json."`
	LogLevel        string                `name:"log-level" enum:"debug,info,warn,error" default:"info" group:"common" help:"Log level: debug, info, warn or error. Requests are info; probes, static files and auto-refresh are debug."`
	NoMigrate       bool                  `name:"no-migrate" group:"common" help:"Never create or migrate databases in serve and append; other commands never do."`
	AuditOnly       []string              `name:"audit-only" placeholder:"TYPE" group:"common" help:"An event type that is stored in the journal but never applied. Repeatable."`
	MaxPayload      int                   `name:"max-payload" placeholder:"BYTES" default:"${max_payload}" least:"1" group:"common" help:"Maximum payload of an event, in bytes."`
	ReasonFrom      int64                 `name:"reason-from" placeholder:"ROWS" default:"0" group:"common" help:"Require a reason for actions that release this many rows or more: 1 for every action, 0 for none."`
	Mode            modeFlag              `name:"mode" placeholder:"MODE" default:"outbox_apply_only" group:"common" values:"mode" help:"What happens on append: outbox_apply_only, inline_apply_only or shadow_only."`
	OutboxEnabled   *bool                 `name:"outbox-enabled" group:"common" help:"Deprecated, use --mode: appends write outbox rows."`
	WorkerEnabled   *bool                 `name:"worker-enabled" group:"common" help:"Deprecated, use --mode: a worker applies rows."`
	ShadowEnabled   *bool                 `name:"shadow-enabled" group:"common" help:"Deprecated, use --mode: a worker rehearses rows."`
	sources         map[string]source     // of the flags' values
	settings        []database.Setting    // the flags' values for display
	sections        map[string]*yaml.Node // keys of the configuration file that are no flags
}

// modeFlag is an campaign.Mode as written in a flag or a file.
type modeFlag campaign.Mode

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *modeFlag) UnmarshalText(text []byte) error {
	mode, err := campaign.ParseMode(string(text))
	*m = modeFlag(mode)
	return err
}

// AfterApply implements kong's hook: it records which flags were given explicitly, and their effective values
// without secrets.
func (c *Common) AfterApply(parsed *kong.Context) error {
	c.sources = map[string]source{}
	for _, flag := range parsed.Flags() {
		from := sourceOf(parsed, flag)
		c.sources[flag.Name] = from
		if flag.Name != "help" && !flag.Hidden {
			c.settings = append(c.settings, database.Setting{Name: flag.Name, Value: shownValue(flag.Name, parsed.FlagValue(flag)), Given: from != fromDefault})
		}
	}
	return c.resolveMode()
}

// resolveMode derives the mode from the three older switches when any of them is given.
func (c *Common) resolveMode() error {
	if c.OutboxEnabled == nil && c.WorkerEnabled == nil && c.ShadowEnabled == nil {
		return nil
	}
	if c.sources["mode"] != fromDefault {
		return usagef("--mode cannot be combined with --outbox-enabled, --worker-enabled or --shadow-enabled")
	}
	is := func(b *bool) bool { return b != nil && *b }
	mode, err := campaign.Switches{Outbox: is(c.OutboxEnabled), Worker: is(c.WorkerEnabled), Shadow: is(c.ShadowEnabled)}.Mode()
	if err != nil {
		return asUsage("--outbox-enabled", err)
	}
	c.Mode = modeFlag(mode)
	return nil
}

// source is where a flag's value comes from.
type source int

const (
	fromDefault source = iota
	fromFile           // of --config
	fromShell          // the command line or the environment
)

func sourceOf(parsed *kong.Context, flag *kong.Flag) source {
	if envGiven(flag) {
		return fromShell
	}
	found := fromDefault
	for _, p := range parsed.Path {
		switch {
		case p.Flag != flag:
		case p.Resolved:
			found = max(found, fromFile)
		default:
			found = fromShell
		}
	}
	return found
}

// variables are what the tags of flags name as ${NAME}.
var variables = map[string]string{
	"max_payload": strconv.Itoa(event.DefaultMaxPayload), "default_page": strconv.Itoa(event.DefaultPage), "max_page": strconv.Itoa(event.MaxPage),
	"default_requeue": strconv.Itoa(event.DefaultRequeue), "confirm_above": event.Number(operator.ConfirmAbove), "max_batch": strconv.Itoa(event.MaxBatch),
	"default_poll": event.DefaultPoll.String(), "default_lease": event.DefaultLease.String(), "default_event_timeout": event.DefaultEventTimeout.String(),
	"least_wait": event.LeastWait.String(), "least_lease": event.LeastLease.String(),
	"default_concurrency": strconv.Itoa(event.DefaultConcurrency), "default_run_parallel": strconv.Itoa(event.DefaultRunParallel),
	"roles": operator.AnyRole(),
}

// expanded is the text of a tag with its variables, but those of kong's own.
func expanded(text string) string {
	return os.Expand(text, func(name string) string { return cmp.Or(variables[name], "${"+name+"}") })
}

// fillIn puts the variables into the tags. Kong itself looks for each variable in each other one for
// each flag, a third of the time that it takes to make a parser.
func fillIn(parser *kong.Kong) error {
	return kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if value, ok := node.(*kong.Value); ok {
			for _, text := range []*string{&value.Help, &value.Default, &value.Enum} {
				*text = expanded(*text)
			}
		}
		return next(nil)
	})
}

// newParser makes the command-line parser. A broken model panics: it would be broken at every
// start.
func newParser(c *cli, std streams) *kong.Kong {
	c.addActions()
	parser, err := kong.New(c,
		kong.Name("outboxweb"),
		kong.Description("Keeps read models in step with an event journal, and gives operators a console."),
		kong.Writers(std.out, std.err),
		kong.Bind(&c.Common),
		kong.PostBuild(nameVariables),
		kong.PostBuild(fillIn),
		kong.ExplicitGroups([]kong.Group{{Key: "common", Title: "Flags of every command:"}}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err)
	}
	return parser
}

var (
	quotedName = regexp.MustCompile(`"([^"]*)"`)
	noValue    = regexp.MustCompile(`: expected \w+ value but got "EOL" \(<EOL>\)`)
	flagValue  = regexp.MustCompile(`: expected \w+ value but got "(--.*)" \(long flag\).*`)
	noNumber   = regexp.MustCompile(`expected a valid \d+ bit u?int but got (".*")`)
	oneDash    = regexp.MustCompile(`^unknown flag -[^-,]+`)
	likeAFlag  = regexp.MustCompile(`expected .* but got "(.*)" \(short flag\).*`)
)

// usageSentence turns kong's parse errors into one readable sentence.
func usageSentence(err error) string {
	text := err.Error()
	command := "outboxweb"
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok && wrong.Context.Selected() != nil {
		command, _, _ = strings.Cut(wrong.Context.Selected().FullPath(), " <")
	}
	see := "; see " + command + " --help"
	if rest, found := strings.CutPrefix(text, "expected one of "); found {
		return "a command is missing; use one of " + quotedName.ReplaceAllString(rest, "$1") + see
	}
	if rest, found := strings.CutPrefix(text, "missing flags: "); found {
		return rest + " is missing" + see
	}
	if rest, found := strings.CutPrefix(text, "expected "); found {
		return quotedName.ReplaceAllString(rest, "$1") + " is missing" + see
	}
	if unknown := oneDash.FindString(text); unknown != "" {
		return unknown + "; write an argument that begins with - after --" + see
	}
	text = noValue.ReplaceAllString(text, " needs a value")
	text = flagValue.ReplaceAllString(text, ` needs a value; write one that begins with - as ="$1"`)
	text = noNumber.ReplaceAllString(text, "must be a whole number, not $1")
	return likeAFlag.ReplaceAllString(text, `write a value that begins with - after =, such as ="$1"`)
}

// app is what a command's Run works with.
type app struct {
	streams
	Common
	redact *redact.Redactor // what logs redact; nil redacts the built-in patterns
}

var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// logger returns a logger to stderr with the format and level of the flags, without secrets.
func (a *app) logger() *slog.Logger { return a.loggerTo(a.err) }

func (a *app) loggerTo(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: logLevels[a.LogLevel]}
	var to slog.Handler = slog.NewTextHandler(w, options)
	if a.LogFormat == "json" {
		to = slog.NewJSONHandler(visible{w}, options)
	}
	hide := a.redact
	if hide == nil {
		hide = redact.Builtin()
	}
	return slog.New(hide.Log(to))
}
