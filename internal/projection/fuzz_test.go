package projection

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// saysWhere is the beginning of a refusal about a file: its name and a line.
var saysWhere = regexp.MustCompile(`^f\.sql:[1-9][0-9]*: `)

// longestLoad bounds the time to load a file of a few kilobytes, which takes a few milliseconds
// unless it never ends.
const longestLoad = 30 * time.Second

// FuzzProjectionFile loads any file. It is loaded, or refused with the line of the fault, within a
// bounded time.
func FuzzProjectionFile(f *testing.F) {
	for _, content := range []string{roster, head, "-- projection: p\n-- schema: create", "", "\ufeff" + head, strings.ReplaceAll(head, "\n", "\r\n")} {
		f.Add(content)
	}
	shipped, err := filepath.Glob("builtin/*/*.sql")
	if err != nil || len(shipped) == 0 {
		f.Fatalf("there are no files to begin with: %v", err)
	}
	for _, name := range shipped {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(content))
	}
	f.Fuzz(func(t *testing.T, content string) {
		started := time.Now()
		for _, dialect := range dialects {
			s, err := build(dialect, []file{{name: "f.sql", content: content}})
			switch {
			case err == nil && (len(s.projections) != 1 || s.projections[0].Name == ""):
				t.Fatalf("loaded %+v", s.projections)
			case err != nil && (!errors.Is(err, outbox.ErrSetup) || !saysWhere.MatchString(err.Error())):
				t.Fatalf("the refusal is %q", err)
			}
		}
		if took := time.Since(started); took > longestLoad {
			t.Fatalf("%d bytes took %s", len(content), took)
		}
	})
}
