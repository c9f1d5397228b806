package e2e

import (
	"maps"
	"path/filepath"
	"testing"
)

// A backup is taken beside a server under load, and restored it is complete: everything
// acknowledged before it began is there, and the next start reconciles both copies. Leases last an
// hour: a copied lease would keep its campaign from being applied.
func TestBackupRestore(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	serve := append([]string{"--lease", "1h"}, projections...)
	s := start(t, d, serve...)
	l := startLoad(t, 8, 12)
	l.point(s)
	l.awaitProgress(t, 500)

	l.mu.Lock()
	before := maps.Clone(l.acked)
	l.mu.Unlock()
	backup := backupWithLeases(t, d, projections)
	if r := command(t, d, nil, "restore", backup); r.code != 2 || r.stderr == "" {
		t.Errorf("restoring over databases in use: exit code %d, %q", r.code, r.stderr)
	}
	l.awaitProgress(t, 100) // the server was not disturbed
	l.finish(t)
	s.awaitSettled(t)

	restored := newDatabases(t)
	mustCommand(t, restored, nil, append([]string{"restore", backup}, projections...)...)
	second := start(t, restored, serve...)
	if sum := second.awaitSettled(t); sum.Counts.Dead > 0 || sum.Lag.Events > 0 {
		t.Errorf("settled at %+v", sum)
	}
	(&load{acked: before}).verifyJournal(t, restored)
	verifyApplied(t, restored)
	if code := second.stop(t); code != 0 {
		t.Errorf("the server on the restored files ended with exit code %d", code)
	}
	checkClean(t, restored, projections...)
	checkClean(t, d, projections...)

	has := scalar[int64](t, restored.journal(), "select count(*) from events")
	if all := int64(l.progress()); has < int64(len(before)) || has >= all {
		t.Errorf("the backup has %d events; %d were there when it began, and %d in the end", has, len(before), all)
	}
}

// backupWithLeases backs up until a copy shows a worker in the middle of a wave, as nearly every
// one does under load.
func backupWithLeases(t *testing.T, d databases, projections []string) (dir string) {
	t.Helper()
	const tries = 20
	for range tries {
		dir = filepath.Join(t.TempDir(), "backup")
		mustCommand(t, d, nil, append([]string{"backup", dir}, projections...)...)
		if scalar[int64](t, filepath.Join(dir, "journal.db"), "select count(*) from campaigns where lease_owner <> ''") > 0 {
			return dir
		}
	}
	t.Logf("none of %d backups came upon a wave", tries)
	return dir
}
