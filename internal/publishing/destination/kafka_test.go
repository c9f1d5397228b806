package destination_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

const partitions = 3

func kafka(tb testing.TB, options ...kfake.Opt) *kfake.Cluster {
	cluster := must.Get(kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(partitions, "scenes")}, options...)...)).Or(tb)
	tb.Cleanup(cluster.Close)
	return cluster
}

func openKafka(tb testing.TB, cluster *kfake.Cluster, lines ...string) destination.Publisher {
	return open(tb, append([]string{"url: kafka://" + strings.Join(cluster.ListenAddrs(), ",") + "/scenes"}, lines...)...)
}

func records(tb testing.TB, cluster *kfake.Cluster, options ...kgo.Opt) map[int32][]*kgo.Record {
	count := int64(0)
	for _, p := range cluster.PartitionInfos("scenes") {
		count += p.HighWatermark
	}
	client := must.Get(kgo.NewClient(append(options, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("scenes"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableClientMetrics())...)).Or(tb)
	defer client.Close()
	ctx, cancel := context.WithTimeout(tb.Context(), must.Patience)
	defer cancel()
	got := map[int32][]*kgo.Record{}
	for count > 0 && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got[r.Partition] = append(got[r.Partition], r); count-- })
	}
	must.Need(tb, count <= 0, "%d records did not come", count)
	return got
}

// seqs are those of the records, by campaign and as they arrived.
func seqs(tb testing.TB, records map[int32][]*kgo.Record) map[string][]int64 {
	at, got := map[string]int32{}, map[string][]int64{}
	for partition, list := range records {
		for _, r := range list {
			for _, position := range positions(tb, append(bytes.Clone(r.Value), '\n')) {
				e := journalEvent(position)
				before, ok := at[e.CampaignID]
				must.Hold(tb, (!ok || before == partition) && string(r.Key) == e.CampaignID, "an event of %s has the key %s and is in partition %d", e.CampaignID, r.Key, partition)
				at[e.CampaignID] = partition
				got[e.CampaignID] = append(got[e.CampaignID], e.Seq)
			}
		}
	}
	return got
}

// wantSeqs wants the events of the positions from 1 to last of each campaign,
// in order and without repeats.
func wantSeqs(tb testing.TB, got map[string][]int64, last int64) {
	want := map[string][]int64{}
	for position := int64(1); position <= last; position++ {
		e := journalEvent(position)
		want[e.CampaignID] = append(want[e.CampaignID], e.Seq)
	}
	must.Equal(tb, fmt.Sprint(got), fmt.Sprint(want), "the URL")
}

func TestKafka_keepsTheOrderOfACampaign(t *testing.T) {
	t.Parallel()
	cluster := kafka(t)
	p := openKafka(t, cluster)
	deliver(t, p, 1, 3000) // several groups
	deliver(t, p, 3001, 3010)
	got := records(t, cluster)
	wantSeqs(t, seqs(t, got), 3010)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Err: kerr.TopicAuthorizationFailed})
	refused(t, p, 3011, 3020, 0, operator.DestinationError, "the user may not write to the topic scenes")
	for _, list := range got {
		header := list[0].Headers
		must.Hold(t, len(header) == 1 && header[0].Key == "content-type" && string(header[0].Value) == "application/cloudevents+json", "headers %v", header)
	}
}

func TestKafka_saysThatThereIsNoTopic(t *testing.T) {
	t.Parallel()
	cluster := kafka(t)
	p := open(t, "url: kafka://"+cluster.ListenAddrs()[0]+"/none")
	refused(t, p, 1, 2, 0, operator.DestinationError, "Kafka has no topic none")
	must.Hold(t, cluster.TopicInfo("none") == nil, "the topic was made")
	must.OK(t, cluster.CreateTopic("none", 1, nil))
	deliver(t, p, 1, 2)
}

// wantOnlySuffixesAgain wants nothing missing and nothing out of order: where the numbers go back,
// all from there on are repeated.
func wantOnlySuffixesAgain(tb testing.TB, campaign string, got []int64) {
	for i := 1; i < len(got); i++ {
		must.Hold(tb, got[i] <= got[i-1]+1, "%s: %d follows %d in %v", campaign, got[i], got[i-1], got)
	}
}

// Whatever brokers answer, nothing is missing and only suffixes are repeated.
func TestKafka_keepsTheOrderUnderErrors(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("note: seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	cluster := kafka(t)
	p := openKafka(t, cluster)
	events, last := journalEvents(1, 400), map[string]int64{}
	for _, e := range events {
		last[e.CampaignID] = e.Seq
	}
	answers := []*kerr.Error{kerr.InvalidRecord, kerr.NotLeaderForPartition, kerr.TopicAuthorizationFailed, kerr.MessageTooLarge, kerr.PolicyViolation, kerr.NotEnoughReplicasAfterAppend, kerr.OutOfOrderSequenceNumber}
	for next, tries := 0, 0; next < len(events); tries++ {
		must.Need(t, tries <= 200, "it does not get on")
		if random.IntN(2) == 0 {
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{random.Int32N(partitions)}, Err: answers[random.IntN(len(answers))]})
		}
		n, err := p.Publish(t.Context(), events[next:min(len(events), next+1+random.IntN(60))])
		next += n
		if err != nil {
			t.Logf("note: at %d: %v", next, err)
		}
	}
	for campaign, got := range seqs(t, records(t, cluster)) {
		wantOnlySuffixesAgain(t, campaign, got)
		must.Hold(t, got[0] <= 2 && got[len(got)-1] == last[campaign], "%s: from %d to %d instead of %d", campaign, got[0], got[len(got)-1], last[campaign])
	}
}

// noisy is an event that is large even when compressed.
func noisy(position int64, size int) event.Event {
	e := journalEvent(position)
	noise := make([]byte, size)
	for i := range noise {
		noise[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[rand.IntN(36)]
	}
	e.Payload = fmt.Appendf(nil, `{"text":%q}`, noise)
	return e
}

// observe calls see with each record batch that comes, its partition and its length in bytes.
func observe(tb testing.TB, cluster *kfake.Cluster, see func(batch kmsg.RecordBatch, partition int32, bytes int)) {
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true, When: func(r kmsg.Request) bool {
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			for _, partition := range topic.Partitions {
				var batch kmsg.RecordBatch
				must.OK(tb, batch.ReadFrom(partition.Records))
				see(batch, partition.Partition, len(partition.Records))
			}
		}
		return true
	}})
}

func TestKafka_keepsRecordBatchesSmallAndLetsBrokersJudgeLargeEvents(t *testing.T) {
	t.Parallel()
	cluster := kafka(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "4000000"}))
	observe(t, cluster, func(batch kmsg.RecordBatch, _ int32, bytes int) {
		must.Hold(t, bytes <= 1_000_000 || batch.NumRecords <= 1, "%d records of %d bytes in a batch", batch.NumRecords, bytes)
	})
	var events []*destination.Event
	for position := int64(1); position <= 30; position++ {
		size := 300_000
		if position == 10 {
			size = 2_000_000
		}
		events = append(events, destination.NewEvent(noisy(position, size), destination.Source("j1")))
	}
	publishAll(t, openKafka(t, cluster), events)
	wantSeqs(t, seqs(t, records(t, cluster, kgo.FetchMaxBytes(50_000_000), kgo.FetchMaxPartitionBytes(50_000_000))), 30)
}

func TestKafka_blamesAnEventThatIsTooLarge(t *testing.T) {
	t.Parallel()
	cluster := kafka(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "20000"}))
	p := openKafka(t, cluster)
	events := journalEvents(1, 40) // together too large
	large := noisy(41, 30_000)
	events = append(append(events, destination.NewEvent(large, destination.Source("j1"))), journalEvents(42, 60)...)
	n, err := p.Publish(t.Context(), events)
	must.Need(t, n == 40 && destination.Cause(err).Kind == operator.EventError && strings.Contains(err.Error(), "more than Kafka takes (max.message.bytes)"), "delivered %d: %v", n, err)
	publishAll(t, p, events[41:]) // an operator skipped it
	for campaign, got := range seqs(t, records(t, cluster)) {
		if campaign == large.CampaignID {
			got = slices.Insert(got, slices.Index(got, large.Seq-1)+1, large.Seq)
		}
		wantOnlySuffixesAgain(t, campaign, got)
	}
}

// Brokers refuse a record batch as a whole; an operator must not skip another event than the
// intended one.
func TestKafka_findsTheEventAtFault(t *testing.T) {
	t.Parallel()
	const mark = "xK7qPz0WvB3nLm9RtY2s"
	cluster := kafka(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Err: kerr.InvalidRecord, When: func(r kmsg.Request) bool {
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			for _, partition := range topic.Partitions {
				if bytes.Contains(partition.Records, []byte(mark)) {
					return true
				}
			}
		}
		return false
	}})
	p := openKafka(t, cluster)
	bad := journalEvent(8)
	bad.Payload = fmt.Appendf(nil, `{"text":%q}`, mark)
	events := append(append(journalEvents(1, 7), destination.NewEvent(bad, destination.Source("j1"))), journalEvents(9, 20)...)
	n, err := p.Publish(t.Context(), events)
	must.Hold(t, n == 7 && destination.Cause(err).Kind == operator.UnknownError && strings.Contains(err.Error(), "Kafka refused the event: INVALID_RECORD"), "delivered %d: %v", n, err)
	deliver(t, p, 9, 20)
}

func TestKafka_goesOnAfterTheBrokersWereAway(t *testing.T) {
	t.Parallel()
	cluster := kafka(t, kfake.NumBrokers(1))
	var port int
	must.Get(fmt.Sscanf(cluster.ListenAddrs()[0], "127.0.0.1:%d", &port)).Or(t)
	p := openKafka(t, cluster)
	deliver(t, p, 1, 10)
	cluster.Close()
	refused(t, p, 11, 20, 0, operator.DestinationError, "connection refused")
	again := kafka(t, kfake.NumBrokers(1), kfake.Ports(port))
	deliver(t, p, 1, 20)
	wantSeqs(t, seqs(t, records(t, again)), 20)
}

func TestKafka_sendsNothingLaterThatWasNotAcknowledged(t *testing.T) {
	t.Parallel()
	cluster, asked := kafka(t, kfake.NumBrokers(1)), make(chan struct{}, 10)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		asked <- struct{}{}
		return nil, nil, true // no answer at all
	})
	p := openKafka(t, cluster)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	n, err := p.Publish(ctx, journalEvents(1, 5))
	must.Hold(t, n == 0 && errors.Is(err, context.Canceled), "delivered %d: %v", n, err)
	deliver(t, p, 1, 5)
	wantSeqs(t, seqs(t, records(t, cluster)), 5)
	must.Hold(t, len(asked) <= 0, "the request that had no answer was sent again")
}

func TestKafka_usesTLS(t *testing.T) {
	t.Parallel()
	config, ca := certificate(t)
	cluster := kafka(t, kfake.NumBrokers(1), kfake.TLS(config))
	at := "url: kafka://" + cluster.ListenAddrs()[0] + "/scenes?tls=true"
	deliver(t, open(t, at, "ca_file: "+ca), 1, 3)
	refused(t, open(t, at), 4, 5, 0, operator.DestinationError, "certificate")
}

func TestKafka_saysWhoItIs(t *testing.T) {
	t.Parallel()
	cluster := kafka(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "me", environment["PASSWORD"]), kfake.Superuser("SCRAM-SHA-256", "scram", "s3cret"))
	at := cluster.ListenAddrs()[0]
	deliver(t, open(t, "url: kafka://me:${PASSWORD}@"+at+"/scenes?sasl=plain"), 1, 3)
	deliver(t, open(t, "url: kafka://scram:s3cret@"+at+"/scenes?sasl=scram-sha-256"), 4, 6)
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return answer, nil, true
	})
	blame := refused(t, open(t, "url: kafka://me:s3cret@"+at+"/scenes?sasl=plain"), 1, 2, 0, operator.DestinationError, "did not accept the name and the password")
	must.Hold(t, !strings.Contains(blame.Error(), "s3cret"), "tells the password: %v", blame)
}

// A client gets the partitions with its first record, and could send part of a group early. A group
// would then be several record batches of a partition, of which one may be accepted after one
// before it was refused.
func TestKafka_aNewClientSendsOneRecordBatchOfAPartitionToo(t *testing.T) {
	t.Parallel()
	cluster := kafka(t)
	type sent struct {
		producer            int64
		partition, sequence int32
	}
	var mu sync.Mutex
	batches := map[sent]int32{} // with how many records
	observe(t, cluster, func(batch kmsg.RecordBatch, partition int32, _ int) {
		mu.Lock()
		defer mu.Unlock()
		batches[sent{batch.ProducerID, partition, batch.FirstSequence}] = batch.NumRecords
	})
	const clients, events = 5, 500
	for range clients {
		deliver(t, openKafka(t, cluster), 1, events)
	}
	mu.Lock()
	defer mu.Unlock()
	alone := 0
	for _, records := range batches {
		if records == 1 {
			alone++
		}
	}
	most := clients * (1 + partitions)
	must.Hold(t, alone == clients && len(batches) <= most, "%d record batches, %d of them of one event", len(batches), alone)
}
