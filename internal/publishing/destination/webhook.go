package destination

import (
	"bytes"
	"context"

	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

const (
	structuredType = "application/cloudevents+json"
	batchType      = "application/cloudevents-batch+json"

	largestRequest = 1 << 20 // bytes of a batch of more than one event
)

// webhook posts events to an HTTP server.
type webhook struct {
	sub    outbox.SubscriptionName
	batch  bool
	client *outbound.Client
}

func openWebhook(p Subscription, o Options) (Publisher, error) {
	client, err := outbound.NewClient(p.SubscriptionName.String(), p.URL, p.settings.webhook.HTTPSettings, p.Timeout, o.Version)
	if err != nil {
		return nil, err
	}
	return &webhook{sub: p.SubscriptionName, batch: p.settings.webhook.batch, client: client}, nil
}

func (w *webhook) Close() error {
	w.client.Close()
	return nil
}

func (w *webhook) Publish(ctx context.Context, events []*Event) (int, error) {
	list, badEvent := encoded(events)
	send := w.publishEach
	if w.batch {
		send = w.publishBatches
	}
	delivered, err := send(ctx, events[:len(list)], list)
	if err == nil && delivered == len(list) {
		err = badEvent
	}
	return delivered, err
}

// publishEach sends one request for each event.
func (w *webhook) publishEach(ctx context.Context, events []*Event, list [][]byte) (int, error) {
	start := w.client.Now()
	for i, e := range events {
		if i > 0 && w.client.Now().Sub(start) > patience {
			return i, nil
		}
		var err error
		if w.batch {
			err = w.postBatch(ctx, events[i:i+1], list[i:i+1])
		} else {
			err = w.post(ctx, e.ID(), structuredType, list[i])
		}
		if err != nil {
			return i, err
		}
	}
	return len(events), nil
}

// publishBatches sends as many events per request as fit. A request that is refused because of its
// events is sent again event by event, to find the one at fault.
func (w *webhook) publishBatches(ctx context.Context, events []*Event, list [][]byte) (int, error) {
	start := w.client.Now()
	for i := 0; i < len(events); {
		if i > 0 && w.client.Now().Sub(start) > patience {
			return i, nil
		}
		n := fitting(list[i:], largestRequest)
		err := w.postBatch(ctx, events[i:i+n], list[i:i+n])
		if n > 1 && err != nil && Cause(err).Kind != outbox.DestinationError {
			each, err := w.publishEach(ctx, events[i:i+n], list[i:i+n])
			return i + each, err
		}
		if err != nil {
			return i, err
		}
		i += n
	}
	return len(events), nil
}

// fitting returns how many of the list, at least one, fit into most bytes together.
func fitting(list [][]byte, most int) int {
	size := 0
	for i, b := range list {
		if size += len(b) + 1; size > most && i > 0 {
			return i
		}
	}
	return len(list)
}

func (w *webhook) postBatch(ctx context.Context, events []*Event, list [][]byte) error {
	body := append([]byte{'['}, bytes.Join(list, []byte{','})...)
	return w.post(ctx, events[0].ID()+"-"+events[len(events)-1].ID(), batchType, append(body, ']'))
}

// post sends one request. id is the same whenever the same events are sent.
func (w *webhook) post(ctx context.Context, id, contentType string, body []byte) error {
	return w.client.Post(ctx, w.sub.Topic+"."+w.sub.Publisher+"."+id, contentType, body, nil)
}
