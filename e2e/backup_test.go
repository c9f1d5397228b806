package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// A backup is taken beside a server under load, in the middle of a wave. Restored it is complete:
// everything acknowledged before it began is there, and the next start reconciles both copies. Leases
// last an hour: a copied lease would keep its campaign from being applied.
func TestBackupRestore(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	serve := append([]string{"--lease", "1h"}, projections...)
	s := start(t, d, serve...)
	l := startLoad(t, 8, ledgerCampaigns(12))
	l.point(s)
	l.awaitProgress(t, 200)
	letGo := holdUp(t, d)
	const leases = "select count(*) from campaigns where lease_owner <> ''"
	eventually(t, patience, "a wave is under work", func() (bool, string) {
		n := scalar[int64](t, d.journal(), leases)
		return n > 0, fmt.Sprint(n, " campaigns are leased")
	})
	l.mu.Lock()
	before := maps.Clone(l.acked)
	l.mu.Unlock()
	backup := filepath.Join(t.TempDir(), "backup")
	mustCommand(t, d, nil, append([]string{"backup", backup}, projections...)...)
	if n := scalar[int64](t, filepath.Join(backup, "journal.db"), leases); n == 0 {
		t.Error("the backup has no wave")
	}
	letGo()
	r := command(t, d, nil, "restore", backup)
	must.Hold(t, r.code == 2 && r.stderr != "", "restoring over databases in use: exit code %d, %q", r.code, r.stderr)
	l.awaitProgress(t, 50) // the server was not disturbed
	l.finish(t)

	restored := newDatabases(t)
	mustCommand(t, restored, nil, append([]string{"restore", backup}, projections...)...)
	second := start(t, restored, serve...)
	sum := second.awaitSettled(t)
	must.Hold(t, sum.Counts.Dead <= 0 && sum.Lag.Events <= 0, "settled at %+v", sum)
	(&load{acked: before}).verifyJournal(t, restored)
	verifyApplied(t, restored)
	must.Equal(t, second.stop(t), 0, "the server on the restored files ended with exit code")
	checkClean(t, restored, projections...)
}
