package store_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestRehearsals_keepTheLatestOfEachCampaign(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeShadow))
	f.AppendN("a", 3)
	f.AppendN("b", 1)
	f.MustPause("b")
	for _, r := range []store.Rehearsal{
		{CampaignID: "a", RehearsedSeq: 1, FailedSeq: 2, Error: strings.Repeat("x", 70<<10), Fingerprint: "x"},
		{CampaignID: "b", RehearsedSeq: 1},
		{CampaignID: "a", RehearsedSeq: 3},
	} {
		must.OK(t, f.RecordRehearsal(f.Ctx, r))
	}
	for seq := int64(1); seq <= 3; seq++ {
		got := f.MustRow("a", seq).Rehearsal
		must.Hold(t, got != nil && *got == (outbox.Rehearsal{At: f.Clock.Now()}), "the rehearsal of event %d is %+v", seq, got)
	}
	waiting, err := f.OutstandingCampaigns(f.Ctx, "", 10)
	must.Hold(t, err == nil && len(waiting) == 1 && waiting[0] == (store.Outstanding{CampaignID: "a", HighWaterSeq: 3}), "outstanding are %+v, %v", waiting, err)
	must.Equal(t, len(must.Get(f.OutstandingCampaigns(f.Ctx, "a", 10)).Or(t)), 0, "after a outstanding")
}
