package destination

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// natsPublisher publishes to a subject of JetStream, one event after the other, each acknowledged
// by its stream before the next is sent. A broken connection is replaced by the next Publish and
// not in between: what the library buffered would arrive when another process may deliver.
type natsPublisher struct {
	sub      operator.SubscriptionName
	settings busSettings
	timeout  time.Duration
	journal  string
	tls      *tls.Config // nil without TLS
	now      func() time.Time

	conn   *nats.Conn // nil before the first Publish and after a failure
	socket net.Conn   // of conn
	stream jetstream.JetStream
	// said is the server's last error outside of replies, such as a missing permission to publish to a
	// subject. No reply follows those.
	said atomic.Pointer[error]
}

func openNATS(p Subscription, o Options) (Publisher, error) {
	n := &natsPublisher{sub: p.SubscriptionName, settings: p.settings.bus, timeout: p.Timeout, journal: o.Journal, now: time.Now}
	var err error
	n.tls, err = p.busTLS()
	return n, err
}

func (n *natsPublisher) Publish(ctx context.Context, events []*Event) (int, error) {
	return inTurn(events, n.now, func(events []*Event, list [][]byte) (int, error) {
		if err := n.publish(ctx, events[0].ID(), list[0]); err != nil {
			return 0, err
		}
		return 1, nil
	})
}

func (n *natsPublisher) publish(ctx context.Context, id string, b []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	if err := n.connect(ctx); err != nil {
		return err
	}
	// The library would keep writing to a server that does not read.
	socket := n.socket
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	message := nats.NewMsg(n.settings.name)
	message.Data = b
	message.Header.Set("content-type", structuredType)
	_, err := n.stream.PublishMsg(ctx, message, jetstream.WithMsgID(n.sub.String()+"/"+n.journal+"/"+id))
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return n.classify(err, len(b))
}

// connect opens a connection unless there is one.
func (n *natsPublisher) connect(ctx context.Context) error {
	if n.conn != nil && n.conn.IsConnected() {
		return nil
	}
	n.drop()
	n.said.Store(nil)
	options := []nats.Option{
		nats.Name("outboxweb " + n.sub.String()), nats.NoReconnect(), nats.DontRandomize(),
		// Timeout bounds each server's greeting; the dialer ends with ctx.
		nats.Timeout(n.timeout / time.Duration(len(n.settings.servers))), nats.SetCustomDialer(contextDialer{ctx, &n.socket}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { n.said.Store(&err) }),
	}
	switch {
	case n.settings.hasPassword:
		options = append(options, nats.UserInfo(n.settings.user, n.settings.password))
	case n.settings.user != "":
		options = append(options, nats.Token(n.settings.user))
	}
	if n.tls != nil {
		options = append(options, nats.Secure(n.tls))
	}
	servers := strings.Join(n.settings.servers, ",")
	conn, err := nats.Connect(servers, options...)
	if err != nil {
		return outbound.DestinationError("no connection to NATS at %s: %w", servers, err)
	}
	stream, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return outbound.DestinationError("JetStream cannot be used: %w", err)
	}
	n.conn, n.stream = conn, stream
	return nil
}

// classify interprets the error of a publish. It closes the connection if a reply may still be in
// flight.
func (n *natsPublisher) classify(err error, size int) error {
	_, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		limit := n.conn.MaxPayload()
		return outbound.EventError("the event is %d bytes as a CloudEvent, and NATS takes %d (max_payload)", size, limit)
	case errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return outbound.EventError("the event is %d bytes as a CloudEvent, which is more than the stream takes (max_msg_size)", size)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return outbound.DestinationError("no JetStream stream has the subject %s; create one, or fix the subject: %w", n.settings.name, err)
	case refused:
		return outbound.DestinationError("the stream refused the event: %w", err)
	}
	n.drop()
	if said := n.said.Swap(nil); said != nil {
		err = fmt.Errorf("%w; the server said: %w", err, *said)
	}
	return outbound.DestinationError("no acknowledgement from NATS: %w", err)
}

func (n *natsPublisher) drop() {
	if n.conn != nil {
		n.conn.Close()
	}
	n.conn, n.stream = nil, nil
}

func (n *natsPublisher) Close() error {
	n.drop()
	return nil
}

// contextDialer ends the library's dial with the context of the Publish that needs it, and keeps
// the connection.
type contextDialer struct {
	ctx    context.Context
	socket *net.Conn
}

func (d contextDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(d.ctx, network, address)
	*d.socket = conn
	return conn, err
}
