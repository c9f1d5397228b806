package main

import (
	"html"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// shownCommand is a command line of the program on a page, to be copied.
var shownCommand = regexp.MustCompile(`aria-label="the command"><code>([^<]*)</code>`)

// readCommands are the lines that the program was found to take, with the names of their commands.
var readCommands sync.Map

// readsCommands fails the test unless the program takes each command line that a page shows, and returns the
// names of their commands.
func readsCommands(t *testing.T, page, text string) (names []string) {
	for _, shown := range shownCommand.FindAllStringSubmatch(text, -1) {
		for line := range strings.SplitSeq(html.UnescapeString(shown[1]), "\n") {
			name, known := readCommands.Load(line)
			if !known {
				name = readCommand(t, page, line)
				readCommands.Store(line, name)
			}
			names = append(names, name.(string))
		}
	}
	return names
}

// readCommand has the shell and the program read a line, and returns the name of its command. ROLE is for the
// reader to replace, and the file of a rehearsal is the reader's.
func readCommand(t *testing.T, page, line string) string {
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+strings.Replace(line, " ROLE ", " viewer ", 1)).Output()
	must.Need(t, err == nil, "%s shows %s, which the shell does not read: %v", page, line, err)
	words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	parsed, err := newParser(new(cli), streams{out: io.Discard, err: io.Discard}).Parse(words[1:])
	must.Need(t, err == nil && words[0] == "outboxweb", "%s shows %s: %v", page, line, err)
	name, _, _ := strings.Cut(strings.TrimPrefix(parsed.Selected().FullPath(), "outboxweb "), " <")
	c, checks := parsed.Selected().Target.Addr().Interface().(interface{ check() error })
	for _, err := range []error{checkValues(parsed), checkLimits(parsed)} {
		must.Hold(t, err == nil, "%s shows %s: %v", page, line, err)
	}
	if checks && name != operator.ActionRehearse.Command() {
		err := c.check()
		must.Hold(t, err == nil, "%s shows %s: %v", page, line, err)
	}
	return name
}

// Each command line on a page is one that the program takes; those of the pages of actions are read while these
// are played.
func TestPages_showCommandsThatTheProgramTakes(t *testing.T) {
	t.Parallel()
	s := newTheatre(t, "sqlite").scene(t)
	all(many, refusing(operator.EventError), rejected, done(current, verify))(s)
	shown := map[string]bool{}
	for _, page := range []string{
		"/campaigns/c-1", "/campaigns/c-1/events/2", "/campaigns/c-1/events/2?tab=details", "/campaigns/c-3/events/2", "/campaigns/c-1/read-model?seq=1&table=seats", "/rows/c-1/2/dry-run?next=3",
		"/operations/new?campaign=c-1&event_type=lost&limit=7", "/projections/seats", "/intake/shop", "/alerts", "/tokens", "/rehearsals/new?projection=seats",
		"/runs/1", "/runs/new?kind=rebuild&all_campaigns=true", "/runs/new?kind=verify&campaign_ids=c-2&projections=seats&until_seq=1&rate=50",
		"/publishers/sales/partner", "/publishers/sales/partner/seek?to=head", "/publishers/sales/partner/seek?to=position&position=1", "/publishers/sales/partner/seek?to=time&time=2026-01-01",
	} {
		said := s.send(s.http, http.MethodGet, page, "", operator.RoleAdmin, http.Header{})
		names := readsCommands(t, page, said.text)
		must.Hold(t, said.status == http.StatusOK && len(names) > 0, "%s is answered with %d, and shows no command: %s", page, said.status, said.text)
		for _, name := range names {
			shown[name] = true
		}
	}
	must.Equal(t, slices.Sorted(maps.Keys(shown)), []string{"alerts mute", "campaigns pause", "campaigns replay", "campaigns rows", "dead-letter", "failures explain", "intake discard", "intake retry",
		"projections pause", "publishers resume", "publishers seek", "rehearse", "requeue", "retry", "runs cancel", "runs start", "skip", "token create"}, "the commands on pages")
}
