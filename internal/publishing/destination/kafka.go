package destination

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outboxweb/outboxweb/internal/outbound"
)

const (
	// groupBytes is the size of events sent at a time. Brokers accept 1 MB in one record batch by
	// default, and accept or refuse a record batch as a whole.
	groupBytes = 900_000
	// recordOverhead exceeds what a record has in addition to its key and value.
	recordOverhead = 128
	// largestRecord bounds what is sent to a broker, whose own limit is lower.
	largestRecord = 64 << 20
	// metadataAge is the minimum interval at which a client asks for partition leaders.
	metadataAge = 250 * time.Millisecond
	// sendTries is how often a group is sent if its partitions change their leader or the like.
	sendTries = 3
)

// kafkaPublisher produces to a topic, with the campaign as the key, so that a campaign's events are
// in one partition and in order. Events are sent in groups: each is acknowledged before the next is
// sent, and is small enough to be one record batch of each partition, so that no event of a
// campaign can be accepted while one before it is refused. Other partitions may accept theirs:
// everything after the first refused event is sent again later. An error closes the client: nothing
// that it has buffered may be sent after that.
type kafkaPublisher struct {
	settings busSettings
	timeout  time.Duration
	tls      *tls.Config // nil without TLS
	now      func() time.Time
	group    int // bytes; less than groupBytes for brokers with a lower limit

	client *kgo.Client // nil before the first Publish and after a failure
	dials  dialErrors
}

// dialErrors keeps why the last connection failed, or nil. The client retries forever and only reports
// a timeout.
type dialErrors struct{ last atomic.Pointer[error] }

// OnBrokerConnect is called by the client.
func (d *dialErrors) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	d.last.Store(&err)
}

func openKafka(p Subscription, _ Options) (Publisher, error) {
	k := &kafkaPublisher{settings: p.settings.bus, timeout: p.Timeout, group: groupBytes, now: time.Now}
	var err error
	k.tls, err = p.busTLS()
	return k, err
}

func (k *kafkaPublisher) Publish(ctx context.Context, events []*Event) (int, error) {
	alone := 0 // so many of the next events are sent one by one
	return inTurn(events, k.now, func(events []*Event, list [][]byte) (int, error) {
		n := 1 // a client without partition metadata would split a group
		if alone == 0 && k.client != nil {
			n = k.fitting(events, list)
		}
		acknowledged, err := k.produce(ctx, events[:n], list[:n])
		if n > 1 && isEventsFault(err) {
			// The whole record batch was refused: find the event at fault.
			alone = n
			if errors.Is(err, kerr.MessageTooLarge) {
				k.group = min(k.group, size(events, list, n)) / 2
			}
			err = nil
		}
		alone = max(0, alone-acknowledged)
		if err != nil {
			err = k.classify(err, len(list[acknowledged]))
		}
		return acknowledged, err
	})
}

func isEventsFault(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) || errors.Is(err, kerr.InvalidRecord)
}

// fitting returns how many events are sent together, at least one.
func (k *kafkaPublisher) fitting(events []*Event, list [][]byte) int {
	n := 1
	for n < len(list) && size(events, list, n+1) <= k.group {
		n++
	}
	return n
}

// size returns the size in bytes of the first n events as records.
func size(events []*Event, list [][]byte, n int) int {
	sum := 0
	for i := range n {
		sum += recordOverhead + len(events[i].CampaignID) + len(list[i])
	}
	return sum
}

// produce sends events and returns how many of them, from the first on, were acknowledged by all
// replicas, and why the next one was not.
func (k *kafkaPublisher) produce(ctx context.Context, events []*Event, list [][]byte) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	if err := k.connect(); err != nil {
		return 0, err
	}
	r := results{err: make([]error, len(events))}
	for i, e := range events {
		r.err[i] = errUnanswered
		record := &kgo.Record{Value: list[i], Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte(structuredType)}}}
		if e.CampaignID != "" {
			record.Key = []byte(e.CampaignID)
		}
		k.client.Produce(ctx, record, func(_ *kgo.Record, err error) { r.set(i, err) })
	}
	flushed := k.client.Flush(ctx)
	acknowledged, err := r.first()
	if err == nil {
		return acknowledged, nil
	}
	if errors.Is(err, errUnanswered) && flushed != nil {
		err = flushed
	}
	if dial := k.dials.last.Load(); dial != nil && *dial != nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w; the last connection failed: %w", err, *dial)
	}
	k.drop()
	return acknowledged, err
}

var errUnanswered = errors.New("the broker did not answer")

// results holds the results of one group's records. Those of a closed client may still arrive.
type results struct {
	mu  sync.Mutex
	err []error
}

func (r *results) set(i int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err[i] = err
}

// first returns the index and error of the first failed record; the number of records if none
// failed.
func (r *results) first() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, err := range r.err {
		if err != nil {
			return i, err
		}
	}
	return len(r.err), nil
}

// connect creates a client, which connects on its own.
func (k *kafkaPublisher) connect() error {
	if k.client != nil {
		return nil
	}
	k.dials.last.Store(nil)
	limit := func(least, most time.Duration) time.Duration { return max(least, min(k.timeout, most)) }
	options := []kgo.Opt{
		kgo.SeedBrokers(k.settings.servers...), kgo.ClientID("outboxweb"), kgo.DefaultProduceTopic(k.settings.name),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ManualFlushing(), kgo.ProducerBatchMaxBytes(largestRecord),
		kgo.ProduceRequestTimeout(limit(100*time.Millisecond, time.Minute)), kgo.RequestTimeoutOverhead(limit(100*time.Millisecond, time.Minute)),
		kgo.RetryTimeout(k.timeout), kgo.DialTimeout(k.timeout), kgo.RecordRetries(sendTries), kgo.UnknownTopicRetries(1), kgo.MetadataMinAge(metadataAge),
		kgo.AllowIdempotentProduceCancellation(), kgo.DisableClientMetrics(), kgo.WithHooks(&k.dials),
	}
	if k.tls != nil {
		options = append(options, kgo.DialTLSConfig(k.tls))
	}
	if mechanism := k.mechanism(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return outbound.DestinationError("cannot create the Kafka client: %w", err)
	}
	k.client = client
	return nil
}

func (k *kafkaPublisher) mechanism() sasl.Mechanism {
	user, password := k.settings.user, k.settings.password
	switch k.settings.sasl {
	case "plain":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "scram-sha-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "scram-sha-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return nil
}

// classify interprets the error of a record of so many bytes.
func (k *kafkaPublisher) classify(err error, size int) error {
	topic, servers := k.settings.name, strings.Join(k.settings.servers, ",")
	switch {
	case errors.Is(err, kerr.InvalidRecord):
		return outbound.Refusal("Kafka refused the event: %w", err)
	case isEventsFault(err):
		return outbound.EventError("the event is %d bytes as a CloudEvent, which is more than Kafka takes (max.message.bytes): %w", size, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return outbound.DestinationError("Kafka has no topic %s, or this user may not see it; topics are not created automatically: %w", topic, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return outbound.DestinationError("the user may not write to the topic %s of Kafka: %w", topic, err)
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return outbound.DestinationError("Kafka at %s did not accept the name and the password (%w)", servers, err)
	case errors.Is(err, context.DeadlineExceeded):
		return outbound.DestinationError("Kafka at %s did not acknowledge within %v: %w", servers, k.timeout, err)
	default:
		return outbound.DestinationError("Kafka at %s did not take the event: %w", servers, err)
	}
}

// drop closes the client and discards its unsent records.
func (k *kafkaPublisher) drop() {
	if k.client != nil {
		k.client.Close()
	}
	k.client = nil
}

func (k *kafkaPublisher) Close() error {
	k.drop()
	return nil
}
