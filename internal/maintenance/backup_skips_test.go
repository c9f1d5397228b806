package maintenance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestSQLiteBackup_carriesWhatIsSkippedAndWhatWasPassedOver(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(4, 2)
	old, current, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "current"), t.TempDir()
	if err := f.Backup(f.Ctx, old, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	f.MustSkip("a", 2)
	f.PassOver()
	f.Drain()
	if err := f.Backup(f.Ctx, current, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	marks := f.Marks()
	for name, days := range map[string]struct{ journal, projections string }{
		"both of one day":                     {current, current},
		"projections from before the skip":    {current, old},
		"journal from before the passed over": {old, current},
	} {
		from, restored := t.TempDir(), filepath.Join(to, name)
		for file, dir := range map[string]string{"journal.db": days.journal, "projections.db": days.projections} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(from, file), content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := restore(f, from, restored); err != nil {
			t.Fatal(err)
		}
		r := openPair(t, dbtest.Files(restored), f.Clock)
		if days.journal == old {
			if c := r.MustCampaign("a"); !strings.Contains(c.Diverged, "the projections skipped event 2") {
				t.Errorf("%s: campaign is %+v, want it diverged", name, c)
			}
			continue
		}
		r.Sound()
		r.Drain()
		r.Sound()
		if len(r.SkipLedger("a")) != 1 || r.MustCampaign("a").AppliedSeq != 4 {
			t.Errorf("%s: the ledger is %+v, campaign %+v", name, r.SkipLedger("a"), r.MustCampaign("a"))
		}
		r.WantMarks(marks...)
	}
}
