package inbound

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
)

// SourceFindings are the sources whose rows do not get into the journal.
func SourceFindings(list []IntakeSource, now time.Time) (all finding.List) {
	for _, s := range UnreadSources(list, now) {
		f := campaign.Found(campaign.FindsSource, s.Name, s.Waiting, "Source "+s.Name+" cannot be read")
		f.Error, f.Since, f.Page = s.Error, s.ErrorAt, campaign.PagePath(nil, "intake", s.Name)
		if s.State(now) == IntakeStopped {
			f.Says, f.Since, f.Level = "No server reads source "+s.Name+": its rows wait in their table", s.LookedAt, finding.Warn
			f.Items = []finding.Item{{Name: s.Name, Note: "read by no server", Page: f.Page}}
		}
		all = append(all, f)
	}
	for _, s := range list {
		if s.Rejected == 0 || !s.InUse(now) {
			continue
		}
		f := campaign.Found(campaign.FindsRejected, s.Name, s.Rejected, event.Count(s.Rejected, "row of source "+s.Name+" is rejected and blocks its campaign", "rows of source "+s.Name+" are rejected, and each blocks its campaign"))
		f.Since, f.Page = s.RejectedAt, campaign.PagePath(nil, "intake", s.Name)
		all = append(all, f)
	}
	return all
}
