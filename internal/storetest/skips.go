package storetest

import (
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// ToSkip is a command with the reason and the confirmation of a skip.
func ToSkip(o outbox.Command, campaign string, seq int64) outbox.Command {
	if o.Reason == "" {
		o.Reason = "it can never be applied"
	}
	o.Confirm = outbox.ActionSkip.Phrase(outbox.Reach{Skipped: outbox.RowKey{CampaignID: campaign, Seq: seq}})
	return o
}

// MustSkip skips an event.
func (f *Fixture) MustSkip(campaign string, seq int64) {
	f.TB.Helper()
	must.Get(f.SkipEvent(f.Ctx, ToSkip(outbox.Command{By: outbox.Operator{Name: "scene"}}, campaign, seq), campaign, seq)).Or(f.TB)
}

// DieAt appends events to campaign a, applies those before seq and makes that one dead.
func (f *Fixture) DieAt(events int, seq int64) {
	f.TB.Helper()
	f.AppendN("a", events)
	if seq > 1 {
		c := f.ClaimOne(One, int(seq-1))
		f.MustApply(c, seq-1)
		f.MustSettle(One, store.Result{Claim: c, Applied: seq - 1})
	}
	f.Kill("a")
}

// PassOver advances the watermark of campaign a over its head, and settles.
func (f *Fixture) PassOver() {
	f.TB.Helper()
	c := f.ClaimOne(One, 1)
	f.MustApply(c, c.Last)
	f.MustSettle(One, store.Result{Claim: c, Applied: c.Last})
}

// SkipTwo makes the second and the third of four events of campaign a dead, one after the
// other, and skips each.
func (f *Fixture) SkipTwo() {
	f.TB.Helper()
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	f.PassOver()
	f.Kill("a")
	f.MustSkip("a", 3)
	f.PassOver()
}

// Marks lists the skip marks of the projections: campaign, seq and skip.
func (f *Fixture) Marks() []string {
	return Texts(f.TB, f.ProjectionsDB, `select campaign_id || ' ' || seq || ' ' || skip_id from watermark_skips order by campaign_id, seq`)
}

// WantMarks fails unless the projections have the wanted skip marks.
func (f *Fixture) WantMarks(want ...string) {
	f.TB.Helper()
	must.Equal(f.TB, f.Marks(), want, "marks")
}

// SkipLedger is the skips of a campaign, newest first.
func (f *Fixture) SkipLedger(campaign string) []outbox.Skip {
	f.TB.Helper()
	page := must.Get(f.Skips(f.Ctx, outbox.SkipFilter{CampaignID: campaign})).Or(f.TB)
	return page.Items
}
