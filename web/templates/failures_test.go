package templates

import (
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestFailuresView_foldsALongListThatRepeatsTheCauses(t *testing.T) {
	t.Parallel()
	open := outbox.FailureFilter{Status: outbox.FailureOpen, Limit: 50}
	failures := func(n int, fingerprint string) (all []outbox.ProjectionFailure) {
		for i := range n {
			all = append(all, outbox.ProjectionFailure{CampaignID: fmt.Sprintf("c-%d", i), Fingerprint: fingerprint})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		filter outbox.FailureFilter
		stuck  []outbox.ProjectionFailure
		want   bool
	}{
		{"long and repeated", open, failures(20, "no seat"), true},
		{"short", open, failures(campaignsOnPage, "no seat"), false},
		{"with an error that is no cause", open, append(failures(20, "no seat"), failures(1, "quarantined")...), false},
		{"chosen", outbox.FailureFilter{Status: outbox.FailureOpen, Projection: "seats", Limit: 50}, failures(20, "no seat"), false},
		{"of all statuses", outbox.FailureFilter{Limit: 50}, failures(20, "no seat"), false},
	} {
		v := FailuresView{Filter: c.filter, All: []outbox.AssessedGroup{{ErrorGroup: outbox.ErrorGroup{Fingerprint: "no seat"}}}}
		v.Stuck.Items = c.stuck
		if got := v.repeated(); got != c.want {
			t.Errorf("a list %s: folded is %v", c.name, got)
		}
	}
}
