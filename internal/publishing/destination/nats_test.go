package destination_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

func natsServer(tb testing.TB, change func(*server.Options)) *server.Server {
	options := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: tb.TempDir(), NoLog: true, NoSigs: true}
	if change != nil {
		change(options)
	}
	s := must.Get(server.NewServer(options)).Or(tb)
	s.Start()
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	must.Need(tb, s.ReadyForConnections(must.Patience), "the server did not start")
	return s
}

// stream makes one for the subject scenes.
func stream(tb testing.TB, s *server.Server, config jetstream.StreamConfig, options ...nats.Option) jetstream.Stream {
	conn := must.Get(nats.Connect(s.ClientURL(), append(options, nats.Timeout(must.Patience))...)).Or(tb)
	tb.Cleanup(conn.Close)
	js := must.Get(jetstream.New(conn, jetstream.WithDefaultTimeout(must.Patience))).Or(tb)
	config.Name, config.Subjects = "SCENES", []string{"scenes"}
	return must.Get(js.CreateOrUpdateStream(tb.Context(), config)).Or(tb)
}

func messages(tb testing.TB, s jetstream.Stream) []*jetstream.RawStreamMsg {
	info := must.Get(s.Info(tb.Context())).Or(tb)
	var list []*jetstream.RawStreamMsg
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m := must.Get(s.GetMsg(tb.Context(), seq)).Or(tb)
		list = append(list, m)
	}
	return list
}

func streamPositions(tb testing.TB, s jetstream.Stream) []int64 {
	var text strings.Builder
	for _, m := range messages(tb, s) {
		text.Write(m.Data)
		text.WriteByte('\n')
	}
	return positions(tb, []byte(text.String()))
}

func TestNATS_publishesInOrderAndOnce(t *testing.T) {
	t.Parallel()
	s := natsServer(t, nil)
	target := stream(t, s, jetstream.StreamConfig{})
	url := "url: " + s.ClientURL() + "/scenes"
	deliver(t, open(t, url), 1, 50)
	deliver(t, open(t, url), 31, 60) // another process, which has not noticed yet
	wantRange(t, streamPositions(t, target), 1, 60)
	first := messages(t, target)[0]
	must.Equal(t, first.Header.Get("Nats-Msg-Id"), "scenes/p/j1/1", "id")
	must.Equal(t, first.Header.Get("content-type"), "application/cloudevents+json", "content-type")
}

func TestNATS_saysThatThereIsNoStream(t *testing.T) {
	t.Parallel()
	s := natsServer(t, nil)
	p := open(t, "url: "+s.ClientURL()+"/scenes")
	refused(t, p, 1, 2, 0, operator.DestinationError, "no JetStream stream has the subject scenes")
	target := stream(t, s, jetstream.StreamConfig{})
	deliver(t, p, 1, 2)
	wantRange(t, streamPositions(t, target), 1, 2)
}

func TestNATS_goesOnAfterTheServerWasAway(t *testing.T) {
	t.Parallel()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	port := listener.Addr().(*net.TCPAddr).Port
	must.OK(t, listener.Close())
	dir := t.TempDir()
	again := func(o *server.Options) { o.Port, o.StoreDir = port, dir }
	p := open(t, fmt.Sprintf("url: nats://127.0.0.1:%d/scenes", port))
	refused(t, p, 1, 2, 0, operator.DestinationError, "no connection to NATS at 127.0.0.1")

	s := natsServer(t, again)
	stream(t, s, jetstream.StreamConfig{})
	deliver(t, p, 1, 10)
	s.Shutdown()
	s.WaitForShutdown()
	refused(t, p, 11, 12, 0, operator.DestinationError, "NATS")

	s = natsServer(t, again)
	deliver(t, p, 11, 20)
	s.Shutdown()
	s.WaitForShutdown()
	must.Eventually(t, "the publisher to notice", func() bool { return !destination.Connected(p) })

	s = natsServer(t, again)
	deliver(t, p, 21, 30) // nothing was in progress, so nothing is wrong
	wantRange(t, streamPositions(t, stream(t, s, jetstream.StreamConfig{})), 1, 30)
}

func TestNATS_blamesAnEventThatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := natsServer(t, func(o *server.Options) { o.MaxPayload = 5000 })
	target := stream(t, s, jetstream.StreamConfig{MaxMsgSize: 3000})
	p := open(t, "url: "+s.ClientURL()+"/scenes")
	for size, says := range map[int]string{3000: "more than the stream takes (max_msg_size)", 6000: "NATS takes 5000 (max_payload)"} {
		large := journalEvent(3)
		large.Payload = fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat("x", size))
		events := append(journalEvents(1, 2), destination.NewEvent(large, destination.Source("j1")))
		n, err := p.Publish(t.Context(), append(events, journalEvents(4, 4)...))
		must.Hold(t, n == 2 && destination.Cause(err).Kind == operator.EventError && strings.Contains(err.Error(), says), "delivered %d: %v", n, err)
	}
	wantRange(t, streamPositions(t, target), 1, 2)
}

func TestNATS_blamesAStreamThatIsFull(t *testing.T) {
	t.Parallel()
	s := natsServer(t, nil)
	stream(t, s, jetstream.StreamConfig{MaxMsgs: 3, Discard: jetstream.DiscardNew})
	p := open(t, "url: "+s.ClientURL()+"/scenes")
	refused(t, p, 1, 5, 3, operator.DestinationError, "the stream refused the event: nats: nats: API error: code=503 err_code=10077 description=maximum messages exceeded")
}

func TestNATS_saysWhoItIs(t *testing.T) {
	t.Parallel()
	s := natsServer(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "me", Password: "p@ss/w:o?r#d&%"},
			{Username: "nobody", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"other"}}}},
		}
	})
	target := stream(t, s, jetstream.StreamConfig{}, nats.UserInfo("me", environment["PASSWORD"]))
	at := strings.TrimPrefix(s.ClientURL(), "nats://")
	deliver(t, open(t, "url: nats://me:${PASSWORD}@127.0.0.1:1,"+at+"/scenes"), 1, 3)
	wantRange(t, streamPositions(t, target), 1, 3)
	blame := refused(t, open(t, "url: nats://me:s3cret@"+at+"/scenes"), 1, 2, 0, operator.DestinationError, "Authorization Violation")
	must.Hold(t, !strings.Contains(blame.Error(), "s3cret"), "tells the password: %v", blame)
	refusedInTime(t, "Permissions Violation", "url: nats://nobody:x@"+at+"/scenes")
}

func TestNATS_usesTLS(t *testing.T) {
	t.Parallel()
	config, ca := certificate(t)
	s := natsServer(t, func(o *server.Options) { o.TLS, o.TLSConfig = true, config })
	target := stream(t, s, jetstream.StreamConfig{}, nats.RootCAs(ca))
	at := "url: " + strings.Replace(s.ClientURL(), "tls://", "nats://", 1) + "/scenes?tls=true"
	deliver(t, open(t, at, "ca_file: "+ca), 1, 3)
	wantRange(t, streamPositions(t, target), 1, 3)
	refused(t, open(t, at), 4, 5, 0, operator.DestinationError, "certificate")
}

func TestNATS_givesUpOnAServerThatSaysNothing(t *testing.T) {
	t.Parallel()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	t.Cleanup(func() { _ = listener.Close() })
	p := open(t, "url: nats://"+listener.Addr().String()+"/scenes", "timeout: 200ms")
	ctx, cancel := context.WithTimeout(t.Context(), must.Patience)
	defer cancel()
	n, err := p.Publish(ctx, journalEvents(1, 2))
	must.Hold(t, n == 0 && destination.Cause(err).Kind == operator.DestinationError && ctx.Err() == nil, "delivered %d: %v; %v", n, err, ctx.Err())
}

// stalled is a server that greets and then never answers. It then calls after.
func stalled(tb testing.TB, after func(net.Conn)) string {
	release := make(chan struct{})
	tb.Cleanup(func() { close(release) })
	return must.Serve(tb, func(conn net.Conn) {
		fmt.Fprint(conn, "INFO {\"server_id\":\"x\",\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,\"max_payload\":67108864}\r\n")
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "PING") {
				fmt.Fprint(conn, "PONG\r\n")
				break
			}
		}
		after(conn)
		<-release
	})
}

func TestNATS_doesNotWaitForAServerThatReadsNothing(t *testing.T) {
	t.Parallel()
	var greeted atomic.Bool
	at := stalled(t, func(net.Conn) { greeted.Store(true) })
	events := []*destination.Event{destination.NewEvent(noisy(1, 30<<20), destination.Source("j1"))}
	for timeout := time.Second; !greeted.Load(); timeout *= 4 { // on a slow machine a short one ends before it is connected
		must.Need(t, timeout <= 4*must.Patience, "it does not connect")
		p := open(t, "url: nats://"+at+"/scenes", "timeout: "+timeout.String())
		start := time.Now()
		n, err := p.Publish(t.Context(), events)
		must.Hold(t, n == 0 && (!greeted.Load() || errors.Is(err, context.DeadlineExceeded)) && destination.Cause(err).Kind == operator.DestinationError, "delivered %d: %v", n, err)
		if took := time.Since(start); took > timeout+30*time.Second { // the library gives a write a minute
			t.Errorf("took %v with a timeout of %v", took, timeout)
		}
	}
}

// A reply may still be in flight: it must not be taken for that of the next event.
func TestNATS_leavesAServerThatDoesNotAcknowledge(t *testing.T) {
	t.Parallel()
	p := refusedInTime(t, "no acknowledgement from NATS", "url: nats://"+stalled(t, func(c net.Conn) { go func() { _, _ = io.Copy(io.Discard, c) }() })+"/scenes")
	must.Hold(t, !destination.Connected(p), "the connection was kept")
}

func journalEvent(position int64) event.Event {
	at := time.Date(2026, 11, 21, 7, 10, 3, 120_000_000, time.UTC)
	return event.Event{
		CampaignID: fmt.Sprintf("c-%d", position%3), Seq: position/3 + 1, Position: position, EventID: fmt.Sprintf("e-%d", position),
		EventType: "character.created", OccurredAt: at, RecordedAt: at.Add(time.Microsecond), ActorType: "participant", ActorID: "p-1",
		EntityType: "character", EntityID: "ch-3", SessionID: "s <1> & \"2\"", CorrelationID: "Zürich\u2028",
		Tags: json.RawMessage(`{"wallet_id":"w-1"}`), Metadata: json.RawMessage(`{}`),
		Payload:   json.RawMessage(`{"z":12345678901234567890123,"a":1.10,"html":"<a href='x'>&amp;\u003c","deep":{"n":[9007199254740993,1e300]},"s":"é\u00e9 \u2028"}`),
		EventHash: strings.Repeat("a", 64), ChainHash: strings.Repeat("b", 64),
	}
}

func journalEvents(first, last int64) (events []*destination.Event) {
	for position := first; position <= last; position++ {
		events = append(events, destination.NewEvent(journalEvent(position), destination.Source("j1")))
	}
	return events
}

func TestCloudEvent_isWhatTheSDKReads(t *testing.T) {
	t.Parallel()
	want := journalEvent(912)
	encoded := must.Get(destination.NewEvent(want, destination.Source("j1")).CloudEvent()).Or(t)
	must.Hold(t, !strings.ContainsAny(string(encoded), "\n\r"), "not one line: %q", encoded)
	must.Hold(t, strings.Contains(string(encoded), string(want.Payload)), "the payload's bytes differ:\n%s\n%s", encoded, want.Payload)
	var got cloudevent.Event
	must.OK(t, json.Unmarshal(encoded, &got))
	must.OK(t, got.Validate())
	attributes := map[string]string{
		"specversion": got.SpecVersion(), "id": got.ID(), "source": got.Source(), "type": got.Type(), "subject": got.Subject(),
		"time": got.Time().Format(time.RFC3339Nano), "datacontenttype": got.DataContentType(),
	}
	for name, value := range got.Extensions() {
		attributes[name] = fmt.Sprintf("%T %v", value, value)
	}
	must.Equal(t, attributes, map[string]string{
		"specversion": "1.0", "id": "912", "source": "urn:outboxweb:journal:j1", "type": "character.created", "subject": "c-0",
		"time": "2026-11-21T07:10:03.12Z", "datacontenttype": "application/json", "campaignid": "string c-0", "seq": "string 305",
	})
	var data event.Event
	must.OK(t, got.DataAs(&data))
	must.Equal(t, data, want)
}

// The order of the attributes is the SDK's too: a file recognizes its own lines by it.
func TestCloudEvent_isWhatTheSDKWrites(t *testing.T) {
	t.Parallel()
	atNoTime := journalEvent(4)
	atNoTime.OccurredAt = time.Time{}
	for _, e := range []*destination.Event{
		destination.NewEvent(journalEvent(912), destination.Source("j1")), destination.NewEvent(atNoTime, "HTTPS://ops.example/Zürich?a=<b>&c"),
		destination.TestEvent(destination.Source("j1"), "test-7"),
	} {
		encoded := must.Get(e.CloudEvent()).Or(t)
		var read cloudevent.Event
		must.OK(t, json.Unmarshal(encoded, &read))
		must.OK(t, read.Validate())
		must.Hold(t, (read.Type() == destination.TestType && read.ID() == "test-7") == (read.Subject() == "" && len(read.Extensions()) == 0), "a test event is of no journal: %s", encoded)
		var written bytes.Buffer
		must.OK(t, cloudevent.WriteJson(&read, &written))
		must.Equal(t, string(encoded), written.String(), "from the SDK's to ours")
	}
}

// Names may begin and end with spaces, and then differ from those without. The SDK refuses blank ones, and so
// would many receivers.
func TestCloudEvent_keepsSpacesAndRefusesBlankNames(t *testing.T) {
	t.Parallel()
	e := journalEvent(3)
	e.CampaignID, e.EventType = " c 1\u2028", "\u00a0created\u0085"
	encoded := must.Get(destination.NewEvent(e, destination.Source("j1")).CloudEvent()).Or(t)
	var got struct{ Type, Subject, CampaignID string }
	must.OK(t, json.Unmarshal(encoded, &got))
	must.Hold(t, got.Subject == e.CampaignID && got.CampaignID == e.CampaignID && got.Type == e.EventType, "got %+q of campaign %q, type %q", got, e.CampaignID, e.EventType)
	noType, noCampaign := e, e
	noType.EventType, noCampaign.CampaignID = "\u00a0", " "
	for _, e := range []event.Event{noType, noCampaign} {
		encoded, err := destination.NewEvent(e, destination.Source("j1")).CloudEvent()
		must.Hold(t, err != nil, "written as %s", encoded)
	}
}
