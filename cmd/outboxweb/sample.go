package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/sample"
)

// sampleCmd writes a made-up journal.
type sampleCmd struct {
	Campaigns int       `default:"40" placeholder:"N" help:"How many campaigns."`
	Events    int       `default:"4000" placeholder:"N" help:"How many events over all campaigns."`
	Seed      uint64    `default:"1" placeholder:"S" help:"Another seed gives another journal; the same seed the same one."`
	Poison    int       `default:"0" placeholder:"K" help:"How many campaigns carry an event that cannot be applied."`
	End       time.Time `placeholder:"TIME" help:"When the last events happen, as RFC 3339. Default: the start of this day, UTC."`
}

// Run writes the journal to stdout.
func (c *sampleCmd) Run(ctx context.Context, a *app) error {
	config := sample.Config{Campaigns: c.Campaigns, Events: c.Events, Poison: c.Poison, Seed: c.Seed, End: c.End}
	if config.End.IsZero() {
		config.End = today()
	}
	if err := config.Validate(); err != nil {
		return usagef("%v", err)
	}
	out := bufio.NewWriterSize(a.out, 1<<16)
	err := writeSample(ctx, out, config)
	if err == nil {
		err = out.Flush()
	}
	return err
}

func today() time.Time { return time.Now().UTC().Truncate(24 * time.Hour) }

// line is an event as sample writes it: only what append needs to be told.
type line struct {
	CampaignID    string          `json:"campaign_id"`
	Seq           int64           `json:"seq"`
	EventID       string          `json:"event_id"`
	EventType     string          `json:"event_type"`
	OccurredAt    time.Time       `json:"occurred_at"`
	ActorType     string          `json:"actor_type,omitempty"`
	ActorID       string          `json:"actor_id,omitempty"`
	EntityType    string          `json:"entity_type,omitempty"`
	EntityID      string          `json:"entity_id,omitempty"`
	SessionID     string          `json:"session_id,omitempty"`
	RequestID     string          `json:"request_id,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	Payload       json.RawMessage `json:"payload"`
}

func writeSample(ctx context.Context, w io.Writer, c sample.Config) error {
	enc := json.NewEncoder(w)
	for e := range sample.Events(c) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := enc.Encode(lineOf(e)); err != nil {
			return fmt.Errorf("write the sample journal: %w", err)
		}
	}
	return nil
}

func lineOf(e outbox.Event) line {
	return line{CampaignID: e.CampaignID, Seq: e.Seq, EventID: e.EventID, EventType: e.EventType, OccurredAt: e.OccurredAt,
		ActorType: e.ActorType, ActorID: e.ActorID, EntityType: e.EntityType, EntityID: e.EntityID, SessionID: e.SessionID,
		RequestID: e.RequestID, CorrelationID: e.CorrelationID, Metadata: e.Metadata, Payload: e.Payload}
}
