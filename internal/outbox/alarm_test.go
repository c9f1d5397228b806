package outbox

import (
	"github.com/outboxweb/outboxweb/internal/must"
	"testing"
	"time"
)

func TestAlarm_saysTheWorstInTwoWords(t *testing.T) {
	t.Parallel()
	now := noon
	worker := WorkerSummary{Running: true, LastSeen: &now}
	for want, s := range map[Alarm]Summary{
		{}:                       {Worker: worker, Campaigns: CampaignCounts{Total: 3}},
		{LevelBad, "40 blocked"}: {Worker: worker, Campaigns: CampaignCounts{Total: 60, Blocked: 40, Drifted: 3}, Counts: Counts{Failed: 5}},
		{LevelBad, "2 diverged"}: {Worker: worker, Campaigns: CampaignCounts{Total: 60, Blocked: 40, Diverged: 2}, Events: 9},
		{LevelBad, "3 drifted"}:  {Worker: worker, Campaigns: CampaignCounts{Total: 60, Drifted: 3}},
		{LevelBad, "disk full"}:  {Worker: worker, Campaigns: CampaignCounts{Total: 60, Blocked: 1}, Faults: []DatabaseFault{FullDisk("journal", now.Add(-time.Minute))}},
		{LevelWarn, "5 failing"}: {Worker: worker, Campaigns: CampaignCounts{Total: 60}, Counts: Counts{Failed: 5}},
		{LevelBad, "trouble"}:    {Campaigns: CampaignCounts{Total: 2, Lagging: 1}, Lag: Lag{Events: 3}},
		{LevelWarn, "warning"}:   {Worker: worker, Campaigns: CampaignCounts{Total: 2, Paused: 1}},
	} {
		must.Equal(t, s.Alarm(now), want, "alarm")
	}
}
