package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// under runs the program in a directory with a umask.
func under(t *testing.T, umask, dir string, args ...string) *exec.Cmd {
	t.Helper()
	program := must.Get(exec.LookPath("outboxweb")).Or(t)
	cmd := exec.Command("sh", append([]string{"-c", `umask "$0" && exec "$@"`, umask, program}, args...)...)
	cmd.Dir = dir
	return cmd
}

const publishToFile = `
topics:
  all:
    match: {event_types: ["*"]}
    publishers:
      out: {url: "file:DIR/published.ndjson"}
`

const threeEvents = `{"campaign_id":"c","event_type":"campaign.created","payload":{"name":"x"}}
{"campaign_id":"c","event_type":"note.added","payload":{}}
`

// Whatever the umask, no other user can read the files that the program creates: databases with
// their companion files, backups, restored and published files.
func TestFiles_areTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"000", "022", "077"} {
		t.Run(umask, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			given := filepath.Join(dir, "given") // a directory that others may read
			must.OK(t, os.Mkdir(given, 0o755))
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				must.OK(t, os.WriteFile(path, []byte(text), 0o600))
				return path
			}
			databases := []string{"--journal-db", "sqlite:deep/journal.db", "--projections-db", "sqlite:new/projections.db"}
			config := write("config.yaml", strings.ReplaceAll(publishToFile, "DIR", given))
			serving := &served{t: t, dir: dir, ended: make(chan error, 1),
				cmd: under(t, umask, dir, append([]string{"serve", "--listen", "127.0.0.1:0", "--config", config}, databases...)...)}
			serving.cmd.Stderr = &serving.stderr
			serving.start()
			run := func(args ...string) {
				t.Helper()
				if out, err := under(t, umask, dir, args...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
			}
			run(append([]string{"append", write("events.jsonl", threeEvents)}, databases...)...)
			eventually(t, "the events are published", func() bool {
				text, err := os.ReadFile(filepath.Join(given, "published.ndjson"))
				return err == nil && strings.Count(string(text), "\n") == 2
			})
			run(append([]string{"backup", "saved"}, databases...)...)
			must.OK(t, os.Mkdir(filepath.Join(given, "empty"), 0o755))
			run(append([]string{"backup", "given/empty"}, databases...)...)
			run("restore", "saved", "--journal-db", "sqlite:back/here/journal.db", "--projections-db", "sqlite:back/projections.db")
			wantPrivate(t, dir, []string{".", "given", "given/empty"}, []string{
				"deep/journal.db", "deep/journal.db-wal", "deep/journal.db-shm", "new/projections.db", "new/projections.db-wal", "new/projections.db-shm",
				"saved/journal.db", "saved/projections.db", "given/empty/journal.db", "given/empty/projections.db",
				"back/here/journal.db", "back/projections.db", "given/published.ndjson"})
			serving.signal(syscall.SIGTERM)
			if err := serving.wait(); err != nil {
				t.Errorf("%v: %s", err, serving.stderr.String())
			}
		})
	}
}

// wantPrivate checks everything below dir except existing directories: these files must be among
// it.
func wantPrivate(t *testing.T, dir string, there, files []string) {
	t.Helper()
	var seen []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || slices.Contains(there, name) {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has the mode %o", name, got)
		}
		seen = append(seen, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if !slices.Contains(seen, name) {
			t.Errorf("there is no %s: %v", name, seen)
		}
	}
}

// A database opened to a group was opened on purpose.
func TestFiles_thatExistKeepTheirMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := under(t, "022", dir, "migrate").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, journal := filepath.Join(dir, "data"), filepath.Join(dir, "data", "journal.db")
	for path, mode := range map[string]os.FileMode{data: 0o750, journal: 0o640} {
		must.OK(t, os.Chmod(path, mode))
	}
	serving := &served{t: t, dir: dir, ended: make(chan error, 1), cmd: under(t, "077", dir, "serve", "--listen", "127.0.0.1:0")}
	serving.start()
	for path, want := range map[string]os.FileMode{data: 0o750, journal: 0o640, journal + "-wal": 0o640, filepath.Join(data, "projections.db"): 0o600} {
		if got := mode(t, path); got != want {
			t.Errorf("%s has the mode %o, want %o", path, got, want)
		}
	}
}
