package system

import (
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
)

// promise describes an instance's heartbeat interval.
func promise(i *campaign.InstanceState) string {
	if i.BeatEvery > 0 {
		return "Heartbeat every " + event.Age(i.BeatEvery)
	}
	return "No heartbeat (SQLite): last seen when it last applied events"
}

// leaseText is what a lease covers: "events 3–7, epoch 2".
func leaseText(c campaign.HeldLease) string {
	var words []string
	switch {
	case c.Rows == 1:
		words = append(words, fmt.Sprintf("event %d", c.HeadSeq))
	case c.Rows > 1:
		words = append(words, fmt.Sprintf("events %d–%d", c.HeadSeq, c.HeadSeq+c.Rows-1))
	}
	if c.Withheld {
		words = append(words, "paused or diverged")
	}
	return strings.Join(append(words, fmt.Sprintf("epoch %d", c.Epoch)), ", ")
}
