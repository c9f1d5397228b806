package main

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// dedented is the text's lines without indentation.
func dedented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// What the tutorial quotes is in the program.
func TestREADME_quotesTheProgram(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	must.OK(t, err)
	var program strings.Builder
	err = fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		program.WriteString(dedented(string(text)) + "\n")
		return err
	})
	must.OK(t, err)
	added := regexp.MustCompile(`(?m)^\s*\+.*\n`)
	quotes := 0
	for _, block := range regexp.MustCompile("(?ms)^ *```(go|sql|diff)\n(.*?)^ *```$").FindAllStringSubmatch(string(readme), -1) {
		quotes++
		quote := dedented(added.ReplaceAllString(block[2], ""))
		must.Hold(t, strings.Contains(program.String(), quote), "the program does not have what README.md quotes:\n%s", quote)
	}
	must.Hold(t, quotes >= 10, "README.md quotes the program %d times; the pattern no longer finds its blocks", quotes)
}
