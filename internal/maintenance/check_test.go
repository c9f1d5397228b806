package maintenance_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestCheck_namesEachViolation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm      func(*fixture)
		invariant outbox.Invariant
		seq       int64
	}{
		"content changed":      {func(f *fixture) { f.Tamper(`update events set payload = '{}' where seq = 2`) }, "journal_hash", 2},
		"hash changed along":   {func(f *fixture) { f.Tamper(`update events set event_hash = 'x' where seq = 2`) }, "journal_chain", 2},
		"event taken out":      {func(f *fixture) { f.Tamper(`delete from events where seq = 2`) }, "journal_dense", 3},
		"last event taken out": {func(f *fixture) { f.Tamper(`delete from events where seq = 6`) }, "campaign_row", 6},
		"row missing":          {func(f *fixture) { f.Exec(`delete from projection_apply_outbox where seq = 5`) }, "event_owed", 5},
		"last row missing":     {func(f *fixture) { f.Exec(`delete from projection_apply_outbox where seq = 6`) }, "event_owed", 6},
		"row of an applied": {func(f *fixture) {
			f.ExecProjections(`update projection_watermarks set applied_seq = 4, applied_hash = 'x'`)
		}, "applied_and_owed", 4},
		"built from another":     {func(f *fixture) { f.ExecProjections(`update projection_watermarks set applied_hash = 'x'`) }, "watermark_hash", 3},
		"watermark too high":     {func(f *fixture) { f.ExecProjections(`update projection_watermarks set applied_seq = 7`) }, "watermark_bound", 7},
		"watermark of nobody":    {func(f *fixture) { f.ExecProjections(`update projection_watermarks set campaign_id = 'b'`) }, "watermark_bound", 0},
		"counts wrong":           {func(f *fixture) { f.Exec(`update campaigns set pending = pending + 1, dead = dead - 1`) }, "campaign_row", 0},
		"head wrong":             {func(f *fixture) { f.Exec(`update campaigns set head_seq = 5`) }, "campaign_row", 4},
		"head's status wrong":    {func(f *fixture) { f.Exec(`update campaigns set head_status = 'dead'`) }, "campaign_row", 4},
		"high water wrong":       {func(f *fixture) { f.Exec(`update campaigns set high_water_seq = 7`) }, "campaign_row", 7},
		"processing without one": {func(f *fixture) { f.Exec(`update projection_apply_outbox set status = 'processing' where seq = 4`) }, "behind_head", 4},
		"set aside miscounted":   {func(f *fixture) { f.ExecProjections(`update projection_watermarks set set_aside = 1`) }, "set_aside", 3},
		"failures miscounted":    {func(f *fixture) { f.ExecProjections(`update projection_watermarks set open_failures = 1`) }, "open_failures", 3},
		"processing behind": {func(f *fixture) {
			f.Exec(`update projection_apply_outbox set status = 'processing' where seq = 5`)
			f.Exec(`update campaigns set lease_owner = 'w', lease_expires_at = 1`)
		}, "behind_head", 5},
		"tag not indexed":      {func(f *fixture) { f.Exec(`delete from event_tags where name = 'seat'`) }, "tag_index", 3},
		"tag of another type":  {func(f *fixture) { f.Exec(`update event_tags set event_type = 'x' where name = 'seat'`) }, "tag_index", 3},
		"tag with other value": {func(f *fixture) { f.Exec(`update event_tags set value = 'x' where name = 'seat'`) }, "tag_index", 3},
		"tag no event has": {func(f *fixture) {
			f.Exec(`insert into event_tags (name, value, position, event_type) select 'row', '7', position, event_type from events where seq = 2`)
		}, "tag_index", 2},
		"tag of another event": {func(f *fixture) { f.Exec(`update event_tags set position = position - 1 where name = 'show'`) }, "tag_index", 2},
		"tag of no event": {func(f *fixture) {
			f.Exec(`insert into event_tags (name, value, position, event_type) values ('row', '7', 99, 'x')`)
		}, "tag_index", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.AppendN("a", 2)
			f.MustAppend(storetest.Tagged("a", "counted", "seat", "1", "show", "x"))
			f.Drain()
			f.AppendN("a", 3)
			f.Sound()
			c.harm(f)
			var report outbox.CheckReport
			f.Unchanged(func() {
				var err error
				if report, err = f.Check(f.Ctx, func(int64, int64) {}); err != nil {
					t.Fatal(err)
				}
			})
			found := false
			for _, v := range report.Violations {
				found = found || v.Invariant == c.invariant && v.Seq == c.seq && v.Detail != "" && (v.CampaignID == "a" || v.CampaignID == "b" || v.Seq == 0)
			}
			if !found || report.OK {
				t.Errorf("found %+v, want %s at %d", report.Violations, c.invariant, c.seq)
			}
		})
	}
}

func TestCheck_countsWhatItLookedAtAndShowsProgress(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.AppendN("b", 1)
	f.MustAppend(storetest.Tagged("b", "counted", "seat", "1", "show", "x"))
	var steps []int64
	report, err := f.Check(f.Ctx, func(done, total int64) { steps = append(steps, done, total) })
	if err != nil || !report.OK || report.Violations == nil {
		t.Fatalf("report is %+v, %v", report, err)
	}
	for name, want := range map[string]int64{"campaigns": 2, "events": 5, "rows": 5, "tags": 2, "skipped": 0} {
		if report.Checked[name] != want {
			t.Errorf("%d %s checked, want %d", report.Checked[name], name, want)
		}
	}
	if len(steps) != 4 || steps[0] != 1 || steps[2] != 2 || steps[3] != 2 {
		t.Errorf("progress was %v", steps)
	}
}

func TestCheck_doesNotCountEventsThatAreMissing(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	f.Tamper(`delete from events where seq in (2, 3)`)
	report, err := f.Check(f.Ctx, func(int64, int64) {})
	if err != nil || report.OK || report.Checked["events"] != 3 {
		t.Errorf("%d events checked of 3 there are (%v): %+v", report.Checked["events"], err, report.Violations)
	}
}

func TestCheck_allowsAWaveBetweenItsDatabases(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 3)
	f.Sound()
	f.MustApply(c, 2)
	f.Sound()
	f.Clock.Advance(lease)
	f.Sound()
}
