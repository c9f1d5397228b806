package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// The runbook's sections have steps, and those have shell commands with their output. The tests
// below execute docs/operating.md.
type (
	runbookStep struct {
		section, name string
		pages         []string
		blocks        []runbookBlock
	}
	// runbookBlock is a fenced block: ```sh, followed by words for the database it applies to, and
	// for one of two equivalent ways.
	runbookBlock struct {
		only  []string // sqlite, postgres, curl, cli
		units []runbookUnit
	}
	// runbookUnit is commands and what is expected of them.
	runbookUnit struct {
		commands string
		exit     int
		prints   []string
	}
)

const runbookFile = "../docs/operating.md"

var (
	pagesLine    = regexp.MustCompile(`(?m)^Pages?: .*$`)
	pageSpan     = regexp.MustCompile("`(/[^`]*)`")
	fenced       = regexp.MustCompile("(?s)\n```([^\n]*)\n(.*?)\n```")
	variableName = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)`)
)

func readRunbook(t *testing.T) (steps []runbookStep) {
	text := string(must.Get(os.ReadFile(runbookFile)).Or(t))
	must.Need(t, strings.Count(text, "\n```")%2 == 0, "a block does not end")
	for _, section := range strings.Split(text, "\n## ")[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		for _, part := range strings.Split(rest, "\n### ")[1:] {
			name, body, _ := strings.Cut(part, "\n")
			step := runbookStep{section: title, name: name}
			for _, line := range pagesLine.FindAllString(body, -1) {
				for _, span := range pageSpan.FindAllStringSubmatch(line, -1) {
					step.pages = append(step.pages, span[1])
				}
			}
			for _, block := range fenced.FindAllStringSubmatch(body, -1) {
				step.blocks = append(step.blocks, readRunbookBlock(t, block[1], strings.Split(block[2], "\n")))
			}
			steps = append(steps, step)
		}
	}
	return steps
}

func readRunbookBlock(t *testing.T, fence string, lines []string) runbookBlock {
	words := strings.Fields(fence)
	must.Need(t, len(words) != 0 && words[0] == "sh", "%s is no block of commands", fence)
	b := runbookBlock{only: words[1:]}
	for _, line := range lines {
		last := len(b.units) - 1
		expectation, isComment := strings.CutPrefix(line, "# ")
		switch {
		case !isComment && strings.Contains(line, "until "):
			t.Fatalf("%q waits for one outcome, and never ends when there is another", line)
		case isComment && last < 0:
			t.Fatalf("%q stands before any command", line)
		case isComment:
			u := &b.units[last]
			if text, ok := strings.CutPrefix(expectation, "prints: "); ok {
				u.prints = append(u.prints, text)
			} else if n, err := fmt.Sscanf(expectation, "exits %d", &u.exit); n != 1 || err != nil {
				t.Fatalf("%q says neither what is printed nor how it exits", line)
			}
		case last < 0 || len(b.units[last].prints) > 0 || b.units[last].exit != 0:
			b.units = append(b.units, runbookUnit{commands: line + "\n"})
		default:
			b.units[last].commands += line + "\n"
		}
	}
	return b
}

func (b runbookBlock) runs(database, way string) bool {
	for _, word := range b.only {
		if word != database && word != way {
			return false
		}
	}
	return true
}

// shown reports whether a text contains the parts of a pattern, which are separated by …, in order.
func shown(text, pattern string) bool {
	for part := range strings.SplitSeq(pattern, "…") {
		_, rest, found := strings.Cut(text, strings.TrimSpace(part))
		if !found {
			return false
		}
		text = rest
	}
	return true
}

type onCall struct {
	t             *testing.T
	d             databases
	s             *server
	database, way string            // sqlite or postgres; curl or cli
	env           map[string]string // the names that the runbook uses
	serve         []string          // flags of the server
	files         string            // the directory of the projection files
	bin           string            // where outboxweb and journalctl are found
	before        map[string]func() // external events before a step
}

var scenarios = map[string]func(*onCall){
	"Every morning":                          (*onCall).morning,
	"Checks and repairs":                     (*onCall).morning,
	"Lag rises":                              (*onCall).lag,
	"Dead heads grow":                        (*onCall).dead,
	"A worker hangs or none is seen":         (*onCall).hang,
	"Disk full":                              (*onCall).full,
	"The file of a database was replaced":    (*onCall).deleted,
	"A database is damaged":                  (*onCall).damaged,
	"Databases restored from different days": (*onCall).restored,
	"A projection is wrong":                  (*onCall).wrong,
	"A run does not complete":                (*onCall).failedRun,
	"A projection is quarantined":            (*onCall).quarantined,
	"Pause a projection":                     (*onCall).pausing,
	"A publisher does not deliver":           (*onCall).publisher,
	"Verify from cron":                       (*onCall).morning,
	"A projection file changes":              (*onCall).newFile,
	"Before and after an upgrade":            (*onCall).morning,
}

// Every step of the runbook is executed and has the described effect: with curl on one database and with
// commands on the other, in a soak both ways on both. A short run has one way of every fourth section.
func TestRunbook(t *testing.T) {
	t.Parallel()
	var sections []string
	for _, step := range readRunbook(t) {
		sections = append(sections, step.section)
	}
	sections = slices.Compact(sections)
	must.Equal(t, len(sections), len(scenarios), "the sections of the runbook that have scenarios")
	for j, section := range sections {
		for database, create := range map[string]func(*testing.T) databases{"sqlite": newDatabases, "postgres": newPostgres} {
			for k, way := range []string{"curl", "cli"} {
				onPostgres, both := database == "postgres", database == "sqlite" && section == "Disk full" // whose ways differ
				if due := size.Of(j%4 == 0 && k == j/4%2 && onPostgres == (j == 4), both || onPostgres == ((j+k)%2 == 0), true); !due {
					continue
				}
				t.Run(database+"/"+section+"/"+way, func(t *testing.T) {
					t.Parallel()
					scenario, ok := scenarios[section]
					must.Need(t, ok, "the test does not know this section")
					newOnCall(t, create(t), database, way).follow(section, scenario)
				})
			}
		}
	}
}

func newOnCall(t *testing.T, d databases, database, way string) *onCall {
	projections := writeProjections(t, seatProjections)
	o := &onCall{t: t, d: d, database: database, way: way, files: projections[1], bin: t.TempDir(), before: map[string]func(){}, serve: slices.Concat(quickDeath, projections)}
	away := t.TempDir()
	o.env = map[string]string{"C": "table", "AWAY": away, "BACKUP": filepath.Join(away, "backup"), "DIR": o.files, "NEW": binary,
		"DATA": d.dir, "PG": d.url, "ID": "1", "RUN": "1", "P": "badges", "FIXED": t.TempDir()}
	must.OK(t, os.Symlink(binary, filepath.Join(o.bin, "outboxweb")))
	must.OK(t, os.WriteFile(filepath.Join(o.bin, "journalctl"), []byte("#!/bin/sh\nexec cat \"$SERVICE_LOG\"\n"), 0o700))
	return o
}

// start starts the service at its previous address.
func (o *onCall) start(flags ...string) {
	if o.s != nil {
		flags = append(flags, "--listen", strings.TrimPrefix(o.s.url, "http://"))
	}
	o.s = start(o.t, o.d, append(slices.Clone(o.serve), flags...)...)
}

// systemctl is the service manager, as far as the runbook needs it.
func (o *onCall) systemctl(args string) {
	switch args {
	case "stop outboxweb":
		must.Equal(o.t, o.s.stop(o.t), 0, "the server ended with exit code")
	case "start outboxweb":
		o.start()
	case "kill --signal=QUIT outboxweb":
		o.s.signal(o.t, syscall.SIGQUIT)
		<-o.s.exited
	default:
		o.t.Fatalf("nobody knows what systemctl %s does", args)
	}
}

func (o *onCall) follow(section string, scenario func(*onCall)) {
	scenario(o)
	for _, step := range readRunbook(o.t) {
		if step.section != section {
			continue
		}
		if hook := o.before[step.name]; hook != nil {
			hook()
			delete(o.before, step.name)
		}
		for _, page := range step.pages {
			o.open(step.name, page)
		}
		for _, b := range step.blocks {
			for _, u := range b.units {
				if b.runs(o.database, o.way) {
					o.run(step.name, u)
				}
			}
		}
	}
	must.Hold(o.t, len(o.before) == 0, "there are no such steps: %v", slices.Collect(maps.Keys(o.before)))
}

func (o *onCall) open(step, page string) {
	path, query, _ := strings.Cut(page, "?")
	path = os.Expand(path, func(name string) string { return url.PathEscape(o.value(name)) })
	if query != "" {
		path += "?" + os.Expand(query, func(name string) string { return url.QueryEscape(o.value(name)) })
	}
	a := do(o.t, o.s, http.MethodGet, path, nil)
	must.Hold(o.t, a.status == http.StatusOK && strings.HasPrefix(a.header.Get("Content-Type"), "text/html"), "%s: page %s: %d %s", step, path, a.status, a.header.Get("Content-Type"))
}

func (o *onCall) value(name string) string {
	value, ok := o.env[name]
	must.Need(o.t, ok, "the runbook uses $%s, which the test does not set", name)
	return value
}

// run runs commands and compares their output; it executes commands to the service manager itself.
func (o *onCall) run(step string, u runbookUnit) {
	var script strings.Builder
	for line := range strings.Lines(u.commands) {
		args, ok := strings.CutPrefix(line, "systemctl ")
		if !ok {
			script.WriteString(line)
			continue
		}
		o.shell(step, runbookUnit{commands: script.String()})
		script.Reset()
		o.systemctl(strings.TrimSpace(args))
	}
	u.commands = script.String()
	o.shell(step, u)
}

func (o *onCall) shell(step string, u runbookUnit) {
	if u.commands == "" {
		return
	}
	log := filepath.Join(o.bin, "log")
	must.OK(o.t, os.WriteFile(log, []byte(o.s.stderr.String()), 0o600))
	o.env["URL"] = o.s.url
	flags := o.d.flags()
	ctx, cancel := context.WithTimeout(o.t.Context(), must.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", u.commands)
	cmd.Cancel = func() error { return killAll(cmd.Process) }
	cmd.Env = append(program(o.d).Env, "PATH="+o.bin+":"+os.Getenv("PATH"), "SERVICE_LOG="+log,
		"OUTBOXWEB_JOURNAL_DB="+flags[1], "OUTBOXWEB_PROJECTIONS_DB="+flags[3], "OUTBOXWEB_PROJECTIONS="+o.files)
	for name, value := range o.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = withItsOwn()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	must.Need(o.t, err == nil || errors.As(err, &exit), "%s: %v", step, err)
	code := cmd.ProcessState.ExitCode()
	must.Need(o.t, code == u.exit, "%s: exit code %d, want %d, of\n%s%s", step, code, u.exit, u.commands, tail(out.String(), 4000))
	for _, pattern := range u.prints {
		must.Hold(o.t, shown(out.String(), pattern), "%s: not printed: %s; by\n%s%s", step, pattern, u.commands, tail(out.String(), 4000))
	}
}

func (o *onCall) last() { o.env["LAST"] = fmt.Sprint(campaignState(o.t, o.s, o.env["C"]).HighWaterSeq) }

// Placeholders in the runbook are explained, and every explained one is used.
func TestRunbook_namesAreExplained(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(runbookFile)).Or(t)
	explained, used := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		for _, name := range variableName.FindAllStringSubmatch(line, -1) {
			if strings.HasPrefix(line, "| `$") {
				explained[name[1]] = true
			} else {
				used[name[1]] = true
			}
		}
	}
	must.Equal(t, slices.Sorted(maps.Keys(explained)), slices.Sorted(maps.Keys(used)), "what is explained")
}
