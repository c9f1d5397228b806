package destination

import (
	"context"
	"log/slog"
	"time"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// logPublisher logs each event, whatever the log's level: a delivered event must not be lost. It
// does not log payloads.
type logPublisher struct {
	sub    operator.SubscriptionName
	logger *slog.Logger
}

func (l *logPublisher) Publish(ctx context.Context, events []*Event) (int, error) {
	for i, e := range events {
		if err := ctx.Err(); err != nil {
			return i, err
		}
		r := slog.NewRecord(time.Now(), slog.LevelInfo, "event", 0)
		r.AddAttrs(
			slog.String("topic", l.sub.Topic), slog.String("publisher", l.sub.Publisher), slog.Int64("position", e.Position),
			slog.String("campaign_id", e.CampaignID), slog.Int64("seq", e.Seq),
			slog.String("event_type", e.EventType), slog.String("event_id", e.EventID))
		if err := l.logger.Handler().Handle(ctx, r); err != nil {
			return i, outbound.DestinationError("the log: %w", err)
		}
	}
	return len(events), nil
}

func (l *logPublisher) Close() error { return nil }

func openLog(p Subscription, o Options) (Publisher, error) {
	return &logPublisher{sub: p.SubscriptionName, logger: o.Logger}, nil
}
