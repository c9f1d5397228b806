package destination

import (
	"bytes"
	"context"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

const (
	structuredType = "application/cloudevents+json"
	batchType      = "application/cloudevents-batch+json"

	largestRequest = 1 << 20 // bytes of a batch of more than one event
)

// webhook posts events to an HTTP server.
type webhook struct {
	sub    operator.SubscriptionName
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

// Publish sends one request for each event or, in batches, for as many as fit. A batch that is refused
// because of its events is sent again event by event, to find the one at fault.
func (w *webhook) Publish(ctx context.Context, events []*Event) (int, error) {
	alone := 0 // so many of the next events are sent one by one
	return inTurn(events, w.client.Now, func(events []*Event, list [][]byte) (int, error) {
		n := 1
		if w.batch && alone == 0 {
			n = fitting(list, largestRequest)
		}
		err := w.send(ctx, events[:n], list[:n])
		switch {
		case n > 1 && err != nil && Cause(err).Kind != operator.DestinationError:
			alone = n
			return 0, nil
		case err != nil:
			return 0, err
		}
		alone = max(0, alone-n)
		return n, nil
	})
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

// send sends events in one request.
func (w *webhook) send(ctx context.Context, events []*Event, list [][]byte) error {
	if !w.batch {
		return w.post(ctx, events[0].ID(), structuredType, list[0])
	}
	body := append([]byte{'['}, bytes.Join(list, []byte{','})...)
	return w.post(ctx, events[0].ID()+"-"+events[len(events)-1].ID(), batchType, append(body, ']'))
}

// post sends one request. id is the same whenever the same events are sent.
func (w *webhook) post(ctx context.Context, id, contentType string, body []byte) error {
	return w.client.Post(ctx, w.sub.Topic+"."+w.sub.Publisher+"."+id, contentType, body, nil)
}
