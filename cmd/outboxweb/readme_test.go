package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/must"
)

const (
	tableBegin = "<!-- flags: begin -->\n"
	tableEnd   = "<!-- flags: end -->\n"
)

// address is what a help text has that reads as a link, or as one that is not
// whole; the documents show it as code.
var address = regexp.MustCompile(`[a-z]+://[^\s,;]*[^\s,;.]`)

// flagTable is the table of the flags of every command and of serve in
// docs/configuration.md, made from the flags themselves.
func flagTable() string {
	var c cli
	model := newParser(&c, streams{}).Model
	var b strings.Builder
	section := func(title string, flags []*kong.Flag) {
		b.WriteString("| " + title + " | environment | default | |\n|---|---|---|---|\n")
		for _, flag := range flags {
			if flag.Name == "help" {
				continue
			}
			standard := ""
			if flag.HasDefault {
				standard = "`" + flag.Default + "`"
			}
			b.WriteString("| `--" + flag.Name + "` | `" + flag.Envs[0] + "` | " + standard + " | " + address.ReplaceAllString(flag.Help, "`$0`") + " |\n")
		}
		b.WriteString("\n")
	}
	section("every command", model.Flags)
	for _, command := range model.Children {
		if command.Name == "serve" {
			section("serve", command.Flags)
		}
	}
	return b.String()
}

// With OUTBOXWEB_UPDATE=1 in the environment the test writes the table
// instead of comparing it.
func TestDocs_flagTableIsTheFlags(t *testing.T) {
	t.Parallel()
	name := filepath.Join(root, "docs", "configuration.md")
	text := must.Get(os.ReadFile(name)).Or(t)
	before, rest, found := strings.Cut(string(text), tableBegin)
	written, after, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		t.Fatalf("docs/configuration.md has no %q … %q", tableBegin, tableEnd)
	}
	want := "\n" + flagTable()
	if written == want {
		return
	}
	if os.Getenv("OUTBOXWEB_UPDATE") == "" {
		t.Fatalf("the flag table of docs/configuration.md is not that of the program; OUTBOXWEB_UPDATE=1 go test ./cmd/outboxweb -run flagTable writes it")
	}
	must.OK(t, os.WriteFile(name, []byte(before+tableBegin+want+tableEnd+after), 0o644))
}

// The table of the three older switches in docs/configuration.md has every combination, with the
// mode that the command line makes of it.
func TestDocs_tableOfSwitchesIsTheModes(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(filepath.Join(root, "docs", "configuration.md"))).Or(t)
	_, rest, _ := strings.Cut(string(text), "<!-- switches: begin -->\n")
	table, _, _ := strings.Cut(rest, "\n<!-- switches: end -->")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	flags := cellsOf(lines[0])
	combinations := map[string]bool{}
	for _, line := range lines[2:] {
		cells := cellsOf(line)
		args := []string{"report"}
		for i, value := range cells[:3] {
			args = append(args, flags[i]+"="+value)
		}
		combinations[strings.Join(args, " ")] = true
		var c cli
		_, err := newParser(&c, streams{out: io.Discard, err: io.Discard}).Parse(args)
		got := string(c.Mode)
		if err != nil {
			got = "refused"
		}
		if got != cells[3] {
			t.Errorf("%v comes to %s (%v), and docs/configuration.md says %s", args, got, err, cells[3])
		}
	}
	if len(combinations) != 8 {
		t.Errorf("docs/configuration.md has %d combinations of three switches", len(combinations))
	}
}

// cellsOf are the texts of a row of a table in Markdown.
func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.Trim(cells[i], " `")
	}
	return cells
}

func TestDocs_nameEveryCommand(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(filepath.Join(root, "docs", "commands.md"))).Or(t)
	var c cli
	for _, command := range newParser(&c, streams{}).Model.Children {
		if !strings.Contains(string(text), "| `"+command.Name) {
			t.Errorf("docs/commands.md lacks %s", command.Name)
		}
	}
}

// The README shows the pictures that lie in docs, and no others.
func TestREADME_showsThePicturesOfDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.png"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pictures (%v)", len(files), err)
	}
	for _, file := range files {
		if !strings.Contains(string(text), "](docs/"+filepath.Base(file)+")") {
			t.Errorf("README.md does not show %s", filepath.Base(file))
		}
	}
	if shown := strings.Count(string(text), "!["); shown != len(files) {
		t.Errorf("README.md shows %d pictures, and docs has %d", shown, len(files))
	}
}

// The variable of a flag that configures is its name in capitals after
// OUTBOXWEB_. What one command is told to do comes from its command line alone.
func TestFlags_haveTheirEnvironmentVariable(t *testing.T) {
	t.Parallel()
	var c cli
	model := newParser(&c, streams{}).Model
	for _, leaf := range model.Leaves(false) {
		for _, flag := range leaf.Flags {
			if leaf.Name != "serve" && len(flag.Envs) > 0 && probing(model)[flag] == nil {
				t.Errorf("--%s of %s has %v, want no variable", flag.Name, leaf.Path(), flag.Envs)
			}
		}
	}
	for _, flag := range configuring(model) {
		want := "OUTBOXWEB_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if len(flag.Envs) != 1 || flag.Envs[0] != want {
			t.Errorf("--%s has %v, want %s", flag.Name, flag.Envs, want)
		}
	}
}
