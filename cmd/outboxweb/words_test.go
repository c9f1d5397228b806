package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// sentence is a user-visible text, and its file.
type sentence struct{ file, text string }

var (
	words     = regexp.MustCompile(`[A-Za-z]{2,} [a-z]`)
	statement = regexp.MustCompile(`(?i)^\s*(?:select|insert|update|delete|create|alter|drop|with|pragma|begin|set|lock|and|or|from|where|order by|group by|left|join|on conflict|values|explain|attach|vacuum|limit|union|;|,|\)|for update|savepoint|release|rollback|case|coalesce|projection_apply_outbox|campaigns)\b`)
	help      = regexp.MustCompile("help:\"((?:[^\"\\\\]|\\\\.)*)\"")
)

// testHelp are the directories used only by tests and builds.
var testHelp = []string{"apitest", "corpus", "cputest", "dbtest", "enginetest", "storetest", "pgtest", "e2e", "tools", "lint", "sample", "migrations"}

// filesOf are the files of the repository with this ending, by path from its root, except those in some directories.
func filesOf(ending string, except ...string) (map[string]string, error) {
	all := map[string]string{}
	return all, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(except, d.Name()) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ending) {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		all[name] = string(text)
		return err
	})
}

// paper is the text of a file of the repository.
func paper(t testing.TB, name string) string {
	return string(must.Get(os.ReadFile(filepath.Join(root, name))).Or(t))
}

// mustBe compares a file with what it has to be. With OUTBOXWEB_UPDATE=1 in the environment it is written instead.
func mustBe(t *testing.T, name, want string) {
	if os.Getenv("OUTBOXWEB_UPDATE") != "" {
		must.OK(t, os.WriteFile(filepath.Join(root, name), []byte(want), 0o644))
	}
	must.Hold(t, paper(t, name) == want, "%s is not that of the program; OUTBOXWEB_UPDATE=1 go test ./cmd/outboxweb -run %s writes it", name, t.Name())
}

// sentences are the texts in the program's own Go: string literals of more than one word other than
// SQL, and the help of flags. Texts in templates are excluded.
var sentences = sync.OnceValues(func() (all []sentence, err error) {
	sources, err := filesOf(".go", testHelp...)
	for name, text := range sources {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_templ.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			return nil, err
		}
		tags := map[*ast.BasicLit]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if n.Tag != nil {
					tags[n.Tag] = true
					if m := help.FindStringSubmatch(n.Tag.Value); m != nil {
						all = append(all, sentence{name, m[1]})
					}
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && !tags[n] && words.MatchString(text) && !statement.MatchString(text) && !strings.Contains(text, "\nfrom ") && !strings.Contains(text, "\nwhere ") {
					all = append(all, sentence{name, text})
				}
			}
			return true
		})
	}
	return slices.Clip(all), err
})

// retired are words that are not the field's, and their replacements.
var retired = map[string]string{
	`\bmend(s|ed|ing)?\b`:   "fix",
	`\b(made|built) anew\b`: "rebuilt",
	`\bset aside\b`:         "quarantined",
	`\b(bring|brings|brought|stands?|are|is) level\b`: "caught up",
	`\b(un)?fold(s|ed|ing)?\b`:                        "replay",
	`\b(they|fold) parts? at\b|\bparting\b`:           "first divergence",
	`\bin (the|its|their) way\b`:                      "blocking, conflicting",
	`\bwhat looking has cost\b`:                       "console overhead",
	`\bswitched off\b`:                                "paused or disabled",
	`\b(last|all|every|this|an|the|which|no) acts?\b`: "action, activity",
	`\blook(s|ed)? again\b`:                           "refresh",
	`\b(somebody|whoever)\b`:                          "the noun",
	`\btokens of machines\b`:                          "API tokens",
	`\bheld against\b`:                                "verification",
	`\b(is|are|was) there (already|twice|[0-9%])`:     "already exists, appears",
	`\bjust now\b`:                                    "at the moment",
	`\btried again\b`:                                 "retried",
	`\bgo(es)? on\b`:                                  "continue",
	`\bunder way\b`:                                   "in progress",
	`\bmeanwhile\b`:                                   "in the meantime",
}

// quoted are words that texts may use: flags and identifiers that scripts depend on, and SQL's.
var quoted = regexp.MustCompile("`[^`\n]*`|set_aside|(?s:<!--.*?-->)")

// Texts of pages, commands, the API and the documentation use the words of docs/concepts.md.
func TestWords_retiredOnesAreNotSaid(t *testing.T) {
	t.Parallel()
	all := must.Get(sentences()).Or(t)
	must.Need(t, len(all) >= 1000, "only %d sentences were found", len(all))
	for name, text := range papers(t) {
		if name != "THIRD_PARTY_NOTICES.md" && name != "CHANGELOG.md" {
			for line := range strings.Lines(prose(text)) {
				all = append(all, sentence{name, line})
			}
		}
	}
	pages := must.Get(filesOf(".templ")).Or(t)
	must.Need(t, len(pages) != 0, "there are no templates")
	for name, text := range pages {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "//") && words.MatchString(line) {
				all = append(all, sentence{name, line})
			}
		}
	}
	word := regexp.MustCompile("(?i)" + strings.Join(slices.Collect(maps.Keys(retired)), "|"))
	for _, s := range all {
		said := word.FindString(quoted.ReplaceAllString(s.text, ""))
		if said == "" {
			continue
		}
		for pattern, better := range retired {
			must.Hold(t, !regexp.MustCompile("(?i)"+pattern).MatchString(said), "%s says %q instead of %q: %s", s.file, said, better, s.text)
		}
	}
}

// Texts are redacted like everything that leaves the server; none of our own looks like a secret.
// The start alone shows how a URL with a password is written, and redacts nothing.
func TestWords_areNotTakenForSecrets(t *testing.T) {
	t.Parallel()
	for _, s := range must.Get(sentences()).Or(t) {
		shown := redact.Builtin().Text(s.text)
		must.Hold(t, shown == s.text || strings.Contains(s.text, "://user:password@"), "%s: %q is shown as %q", s.file, s.text, shown)
	}
}

var (
	paperLink  = regexp.MustCompile(`!?\[[^\]]*\]\(([^)\s]+)\)`)
	paperCode  = regexp.MustCompile("`([^`\n]+)`")
	paperFence = regexp.MustCompile("(?ms)^`{3}.*?^`{3}$")
	paperHead  = regexp.MustCompile(`(?m)^#{1,4} (.+)$`)
	inHouse    = regexp.MustCompile(`^(?:cmd|internal|web|docs|deploy|e2e|lint|tools)(?:/[\w.-]+)+$`)
	makeTarget = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	testName   = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// papers are the Markdown files of the repository, by path from its root.
func papers(t *testing.T) map[string]string {
	all := must.Get(filesOf(".md", ".git", "bin", "data", "node_modules", "vendor")).Or(t)
	must.Need(t, len(all) >= 20, "only %d papers were found", len(all))
	return all
}

// prose is a text without its fenced blocks.
func prose(text string) string { return paperFence.ReplaceAllString(text, "") }

// Links, anchors and pictures resolve within the repository, or are https addresses; nothing points
// outside it.
func TestPapers_linksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all, anchors := papers(t), map[string]map[string]bool{}
	for name, text := range all {
		anchors[name] = map[string]bool{}
		for _, m := range paperHead.FindAllStringSubmatch(prose(text), -1) {
			anchors[name][docs.Anchor(m[1])] = true
		}
	}
	for name, text := range all {
		for _, m := range paperLink.FindAllStringSubmatch(prose(text), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			file := name
			if to != "" {
				file = filepath.Join(filepath.Dir(name), to)
			}
			_, err := os.Stat(filepath.Join(root, file))
			must.Hold(t, err == nil && !strings.HasPrefix(file, ".."), "%s links to %s, which is not there", name, m[1])
			must.Hold(t, anchor == "" || anchors[file][anchor], "%s links to %s, which has no such heading", name, m[1])
		}
	}
}

func TestPapers_nameWhatIsThere(t *testing.T) {
	t.Parallel()
	makefile, tests := paper(t, "Makefile"), strings.Join(slices.Collect(maps.Values(must.Get(filesOf("_test.go")).Or(t))), "\n")
	for name, text := range papers(t) {
		code := paperFence.FindAllString(text, -1)
		for _, m := range paperCode.FindAllStringSubmatch(prose(text), -1) {
			code = append(code, m[1])
			if inHouse.MatchString(m[1]) {
				_, err := os.Stat(filepath.Join(root, m[1]))
				must.Hold(t, err == nil, "%s names %s, which is not there", name, m[1])
			}
		}
		for _, m := range makeTarget.FindAllStringSubmatch(strings.Join(code, "\n"), -1) {
			must.Hold(t, strings.Contains(makefile, "\n"+m[1]+":"), "%s names make %s, which is no target", name, m[1])
		}
		for _, test := range testName.FindAllString(text, -1) {
			must.Hold(t, strings.Contains(tests, "\nfunc "+test), "%s names %s, which is no test", name, test)
		}
	}
}

// address is what a help text has that reads as a link, or as one that is not
// whole; the documents show it as code.
var address = regexp.MustCompile(`[a-z]+://[^\s,;]*[^\s,;.]`)

// flagTable is the table of the flags of every command and of serve in
// docs/configuration.md, made from the flags themselves.
func flagTable() string {
	model := newParser(new(cli), streams{}).Model
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
	section("serve", childNamed(model.Node, "serve").Flags)
	return b.String()
}

// actionTable is the table of the commands that are made of actions, in docs/commands.md.
func actionTable() string {
	b := "| command | does |\n|---|---|\n"
	for _, leaf := range newParser(new(cli), streams{}).Model.Leaves(false) {
		name := leaf.Path()
		for _, arg := range leaf.Positional {
			name += " " + strings.ToUpper(arg.Name)
		}
		if _, made := leaf.Target.Addr().Interface().(*actionCmd); made {
			b += "| `" + name + "` | " + leaf.Help + " |\n"
		}
	}
	return b + "\n"
}

func TestDocs_tablesAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct{ of, table string }{"docs/configuration.md": {"flags", flagTable()}, "docs/commands.md": {"actions", actionTable()}} {
		begin, end := "<!-- "+is.of+": begin -->\n", "<!-- "+is.of+": end -->\n"
		before, rest, found := strings.Cut(paper(t, name), begin)
		_, after, closed := strings.Cut(rest, end)
		must.Need(t, found && closed, "%s has no %q … %q", name, begin, end)
		mustBe(t, name, before+begin+"\n"+is.table+end+after)
	}
}

// The table of the three older switches in docs/configuration.md has every combination, with the
// mode that the command line makes of it.
func TestDocs_tableOfSwitchesIsTheModes(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(paper(t, "docs/configuration.md"), "<!-- switches: begin -->\n")
	table, _, _ := strings.Cut(rest, "\n<!-- switches: end -->")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	flags, combinations := cellsOf(lines[0]), map[string]bool{}
	for _, line := range lines[2:] {
		cells, args := cellsOf(line), []string{"report"}
		for i, value := range cells[:3] {
			args = append(args, flags[i]+"="+value)
		}
		combinations[strings.Join(args, " ")] = true
		c, err := parsed(args...)
		got := string(c.Mode)
		if err != nil {
			got = "refused"
		}
		must.Equal(t, got, cells[3], args, "comes to", err, "), and docs/configuration.md says")
	}
	must.Equal(t, len(combinations), 8, "docs/configuration.md", "combinations of three switches")
}

func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.Trim(cells[i], " `")
	}
	return cells
}

func TestDocs_nameEveryCommand(t *testing.T) {
	t.Parallel()
	text := paper(t, "docs/commands.md")
	for _, command := range newParser(new(cli), streams{}).Model.Children {
		must.Hold(t, strings.Contains(text, "| `"+command.Name), "docs/commands.md lacks %s", command.Name)
	}
}

func TestREADME_showsThePicturesOfDocs(t *testing.T) {
	t.Parallel()
	text := paper(t, "README.md")
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.png"))
	must.Need(t, err == nil && len(files) != 0, "%d pictures (%v)", len(files), err)
	for _, file := range files {
		must.Hold(t, strings.Contains(text, "](docs/"+filepath.Base(file)+")"), "README.md does not show %s", filepath.Base(file))
	}
	must.Equal(t, strings.Count(text, "!["), len(files), "the pictures that README.md shows")
}

// The variable of a flag that configures is its name in capitals after
// OUTBOXWEB_. What one command is told to do comes from its command line alone.
func TestFlags_haveTheirEnvironmentVariable(t *testing.T) {
	t.Parallel()
	model := newParser(new(cli), streams{}).Model
	for _, leaf := range model.Leaves(false) {
		for _, flag := range leaf.Flags {
			must.Hold(t, leaf.Name == "serve" || len(flag.Envs) <= 0 || probing(model)[flag] != nil, "--%s of %s has %v, want no variable", flag.Name, leaf.Path(), flag.Envs)
		}
	}
	for _, flag := range configuring(model) {
		want := "OUTBOXWEB_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		must.Hold(t, len(flag.Envs) == 1 && flag.Envs[0] == want, "--%s has %v, want %s", flag.Name, flag.Envs, want)
	}
}
