package alerts

import (
	"context"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Tonight is whether the system may be left alone, with who is told when it may not be any more.
func (a *Alerts) Tonight(ctx context.Context, s campaign.Summary) (campaign.Tonight, error) {
	v, n := AlertsView{}, s.Tonight()
	now := a.core.Now()
	err := a.core.Journal().Read(ctx, func(t *store.Tx) (err error) {
		if v.Mutes, err = readMutes(t, now); err == nil {
			err = a.readReceivers(t, &v)
		}
		return err
	})
	n.Told = a.told(v.Receivers, sqldb.At(now))
	if len(v.Mutes) > 0 {
		var muted []string
		for _, m := range v.Mutes {
			muted = append(muted, m.Rule+" until "+event.Minute(m.Until))
		}
		n.Quiet = "Muted: " + strings.Join(muted, ", ") + "."
	}
	return n, sqldb.Wrapf(err, "read who is told")
}

// told says who is told, and how it went the last time.
func (a *Alerts) told(receivers []AlertReceiver, now time.Time) string {
	if len(receivers) == 0 {
		return "Nobody would be told: the configuration of this process has no receiver of alerts."
	}
	var said []string
	for _, r := range receivers {
		switch text := r.Name + " (" + r.Kind + ")"; {
		case r.Failures > 0:
			said = append(said, text+" refuses messages: "+r.LastError)
		case r.SentAt == nil:
			said = append(said, text+" was never sent a message; test it")
		default:
			said = append(said, text+" took a message "+event.Age(now.Sub(*r.SentAt))+" ago")
		}
	}
	return "Would be told, by " + event.Count(int64(len(a.Rules)), "rule", "rules") + ": " + strings.Join(said, "; ") + "."
}
