package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// benchEvent returns event n of a campaign, of a typical size.
func benchEvent(campaign string, n int) outbox.Event {
	return outbox.Event{
		CampaignID: campaign, EventID: fmt.Sprintf("e-%d", n), EventType: "bench.moved",
		OccurredAt: time.UnixMicro(1_700_000_000_000_000 + int64(n)*1000),
		ActorType:  "participant", ActorID: "p-1", EntityType: "token", EntityID: fmt.Sprintf("t-%d", n%10_000),
		Payload: json.RawMessage(fmt.Sprintf(`{"amount":%d,"note":"moved across the bridge at dusk","from":{"x":12,"y":7},"to":{"x":13,"y":7}}`, n%97)),
	}
}

// append measures concurrent callers that append batches, each to its own campaign.
func (b *bench) append(ctx context.Context, callers, batch, events int) (m measurement, err error) {
	d, err := b.ground.fresh(ctx)
	if err != nil {
		return measurement{}, err
	}
	defer func() { err = errors.Join(err, b.ground.remove(ctx, d)) }()
	st, err := store.Open(ctx, d.options())
	if err != nil {
		return measurement{}, err
	}
	each := max(1, events/callers/batch)
	errs := make([]error, callers)
	var wait sync.WaitGroup
	start := time.Now()
	for i := range callers {
		wait.Go(func() { errs[i] = appendBatches(ctx, st, fmt.Sprintf("c-%d", i), each, batch) })
	}
	wait.Wait()
	m = rate(callers*each*batch, time.Since(start))
	return m, errors.Join(errors.Join(errs...), st.Close())
}

func appendBatches(ctx context.Context, st *store.Store, campaign string, times, batch int) error {
	for i := 0; i < times && ctx.Err() == nil; i++ {
		events := make([]outbox.Event, batch)
		for j := range events {
			events[j] = benchEvent(campaign, i*batch+j)
		}
		if _, err := st.Append(ctx, store.Append{Events: events}); err != nil {
			return err
		}
	}
	return ctx.Err()
}
