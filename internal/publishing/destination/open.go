package destination

import (
	"crypto/tls"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// patience is how long one call of Publish may continue if events are acknowledged one by one:
// afterwards the delivered ones are recorded.
const patience = 5 * time.Second

// Open returns the subscription's publisher. It does not contact the destination, so an unreachable
// one is no error here. p must come from Config.Parse or Custom.
func (p Subscription) Open(o Options) (Publisher, error) {
	if p.settings.functions.Deliver != nil {
		return openCustom(p, o), nil
	}
	is, known := p.settings.kind.info()
	if !known {
		return nil, event.Setup("publisher %s has no destination", p.SubscriptionName)
	}
	to, err := is.open(p, o)
	if err != nil {
		return nil, err
	}
	return &bounded{calls: p.settings.calls, to: to, log: o.Logger, using: make(chan struct{}, 1)}, nil
}

// busTLS is nil without TLS.
func (p Subscription) busTLS() (*tls.Config, error) {
	if !p.settings.bus.tls {
		return nil, nil
	}
	return outbound.TLSConfig(p.SubscriptionName.String(), p.settings.bus.caFile)
}

// inTurn encodes events and lets send deliver some of those that are left, from the first on, until all are
// delivered, one is not, or the patience is over. In the end it is an error if an event cannot be encoded.
func inTurn(events []*Event, now func() time.Time, send func(events []*Event, list [][]byte) (int, error)) (int, error) {
	list, badEvent := encoded(events)
	began := now()
	for i := 0; i < len(list); {
		if i > 0 && now().Sub(began) > patience {
			return i, nil
		}
		n, err := send(events[i:len(list)], list[i:])
		if i += n; err != nil {
			return i, err
		}
	}
	return len(list), badEvent
}

// encoded returns the events as CloudEvents. It stops at an event that cannot be encoded, and err
// says why.
func encoded(events []*Event) (list [][]byte, err error) {
	for _, e := range events {
		b, err := e.CloudEvent()
		if err != nil {
			return list, outbound.EventError("%w", err)
		}
		list = append(list, b)
	}
	return list, nil
}
