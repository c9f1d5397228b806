package campaign

import (
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/operator"
)

// WentBack is what a process knew when it found that the journal is an earlier one: as after a
// fail-over to a standby that lacked commits.
type WentBack struct {
	Remembered int64          `json:"remembered"` // the last position it had seen an event at
	Gone       int64          `json:"gone"`       // the first of them whose event is missing, or another one now
	Head       int64          `json:"head"`       // the journal's last position when that was found
	Publishers []LostDelivery `json:"publishers"` // those that it had delivered for
}

// LostDelivery is the stretch of positions in which a publisher delivered events that are gone.
type LostDelivery struct {
	operator.SubscriptionName
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Says is what happened and what to do, in sentences.
func (w WentBack) Says() string {
	var lost []string
	for _, p := range w.Publishers {
		lost = append(lost, fmt.Sprintf("%s at positions %d to %d", p.SubscriptionName, p.From, p.To))
	}
	text := fmt.Sprintf("The journal went back: an instance had seen events up to position %d, and those from position %d on are gone, or are others now; when that was found it ended at position %d. What was acknowledged in between is lost.", w.Remembered, w.Gone, w.Head)
	if len(lost) > 0 {
		text += " Delivered, and gone: " + strings.Join(lost, ", ") + "."
	}
	return text + " Tell services and receivers, verify the read models, and rebuild diverged campaigns; applying and publishing continue with the journal as it is."
}
