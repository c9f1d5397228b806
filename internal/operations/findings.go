package operations

import (
	"strconv"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/finding"
)

// OperationFindings are the operations whose outcome nobody has acknowledged.
func OperationFindings(ended []Operation) (all finding.List) {
	for _, o := range ended {
		id := strconv.FormatInt(o.ID, 10)
		f := campaign.Found(campaign.FindsEnded, id, o.Totals.FailedAgain, "Operation "+id+" is "+string(o.Status)+" and waits to be acknowledged")
		if f.Error, f.Since, f.Page, f.Link = o.StopReason, o.FinishedAt, campaign.PagePath(nil, "operations", id), "Review operation "+id; o.Status != OperationStopped {
			f.Level = finding.OK
		}
		f.Items = []finding.Item{{Name: "operation " + id, Note: string(o.Status), Page: f.Page}}
		all = append(all, f)
	}
	return all
}
