package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

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

// sentences are the texts in the program's own Go: string literals of more than one word other than
// SQL, and the help of flags. Texts in templates are excluded.
func sentences(t *testing.T) (all []sentence) {
	t.Helper()
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(testHelp, d.Name()) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_templ.go") {
			return err
		}
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
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
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 1000 {
		t.Fatalf("only %d sentences were found", len(all))
	}
	return all
}

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
	all := sentences(t)
	for name, text := range papers(t) {
		if name != "THIRD_PARTY_NOTICES.md" && name != "CHANGELOG.md" {
			for _, line := range strings.Split(paperFence.ReplaceAllString(text, ""), "\n") {
				all = append(all, sentence{name, line})
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "web", "templates", "*.templ"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d templates (%v)", len(pages), err)
	}
	for _, page := range pages {
		text := must.Get(os.ReadFile(page)).Or(t)
		for _, line := range strings.Split(string(text), "\n") {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "//") && words.MatchString(line) {
				all = append(all, sentence{filepath.Base(page), line})
			}
		}
	}
	for word, better := range retired {
		is := regexp.MustCompile("(?i)" + word)
		for _, s := range all {
			if found := is.FindString(quoted.ReplaceAllString(s.text, "")); found != "" {
				t.Errorf("%s says %q (%s): %s", s.file, found, better, s.text)
			}
		}
	}
}

// Texts are redacted like everything that leaves the server; none of our own looks like a secret.
// The start alone shows how a URL with a password is written, and redacts nothing.
func TestWords_areNotTakenForSecrets(t *testing.T) {
	t.Parallel()
	for _, s := range sentences(t) {
		if shown := redact.Builtin().Text(s.text); shown != s.text && !strings.Contains(s.text, "://user:password@") {
			t.Errorf("%s: %q is shown as %q", s.file, s.text, shown)
		}
	}
}
