package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/must"
)

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
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "data", "node_modules", "vendor"}, d.Name()) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d papers were found", len(all))
	}
	return all
}

// Links, anchors and pictures resolve within the repository, or are https addresses; nothing points
// outside it.
func TestPapers_linksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := papers(t)
	anchors := map[string]map[string]bool{}
	for name, text := range all {
		anchors[name] = map[string]bool{}
		for _, m := range paperHead.FindAllStringSubmatch(paperFence.ReplaceAllString(text, ""), -1) {
			anchors[name][docs.Anchor(m[1])] = true
		}
	}
	for name, text := range all {
		for _, m := range paperLink.FindAllStringSubmatch(paperFence.ReplaceAllString(text, ""), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			file := name
			if to != "" {
				file = filepath.Join(filepath.Dir(name), to)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil || strings.HasPrefix(file, "..") {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			} else if anchor != "" && !anchors[file][anchor] {
				t.Errorf("%s links to %s, which has no such heading", name, m[1])
			}
		}
	}
}

// Files, make targets and tests named in papers exist.
func TestPapers_nameWhatIsThere(t *testing.T) {
	t.Parallel()
	makefile := must.Get(os.ReadFile(filepath.Join(root, "Makefile"))).Or(t)
	tests := testNames(t)
	for name, text := range papers(t) {
		for _, m := range paperCode.FindAllStringSubmatch(paperFence.ReplaceAllString(text, ""), -1) {
			if inHouse.MatchString(m[1]) {
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s names %s, which is not there", name, m[1])
				}
			}
		}
		for _, m := range makeTarget.FindAllStringSubmatch(strings.Join(append(paperFence.FindAllString(text, -1), spans(text)...), "\n"), -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s names make %s, which is no target", name, m[1])
			}
		}
		for _, test := range testName.FindAllString(text, -1) {
			if !strings.Contains(tests, "func "+test) {
				t.Errorf("%s names %s, which is no test", name, test)
			}
		}
	}
}

// spans are the pieces of code within a text.
func spans(text string) (all []string) {
	for _, m := range paperCode.FindAllStringSubmatch(paperFence.ReplaceAllString(text, ""), -1) {
		all = append(all, m[1])
	}
	return all
}

// testNames are the lines of every test function's head.
func testNames(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	head := regexp.MustCompile(`(?m)^func Test\w+`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		b.WriteString(strings.Join(head.FindAllString(string(text), -1), "\n") + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
