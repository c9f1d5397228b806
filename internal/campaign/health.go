package campaign

import (
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
)

// QuarantinedAmong returns the projections that are quarantined in some campaign.
func QuarantinedAmong(held []HeldProjection) []HeldProjection {
	return slices.DeleteFunc(slices.Clone(held), func(h HeldProjection) bool { return h.Quarantined == 0 })
}

// PausedAmong returns the projections that are paused in some campaign.
func PausedAmong(held []HeldProjection) []HeldProjection {
	return slices.DeleteFunc(slices.Clone(held), func(h HeldProjection) bool { return h.PausedWhere() == "" })
}

func allCurrent(total int64) string {
	switch total {
	case 0:
		return "The journal is empty: nothing to apply yet."
	case 1:
		return "The only campaign is current."
	default:
		return fmt.Sprintf("All %s campaigns are current.", event.Number(total))
	}
}

func OfTotal(n, total int64) string {
	if n == 1 {
		return fmt.Sprintf("1 of %s is", event.Count(total, "campaign", "campaigns"))
	}
	return fmt.Sprintf("%s of %s are", event.Number(n), event.Count(total, "campaign", "campaigns"))
}
