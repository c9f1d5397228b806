package destination_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

func journalEvent(position int64) outbox.Event {
	at := time.Date(2026, 11, 21, 7, 10, 3, 120_000_000, time.UTC)
	return outbox.Event{
		CampaignID: fmt.Sprintf("c-%d", position%3), Seq: position/3 + 1, Position: position, EventID: fmt.Sprintf("e-%d", position),
		EventType: "character.created", OccurredAt: at, RecordedAt: at.Add(time.Microsecond), ActorType: "participant", ActorID: "p-1",
		EntityType: "character", EntityID: "ch-3", SessionID: "s <1> & \"2\"", CorrelationID: "Zürich\u2028",
		Tags: json.RawMessage(`{"wallet_id":"w-1"}`), Metadata: json.RawMessage(`{}`),
		Payload:   json.RawMessage(`{"z":12345678901234567890123,"a":1.10,"html":"<a href='x'>&amp;\u003c","deep":{"n":[9007199254740993,1e300]},"s":"é\u00e9 \u2028"}`),
		EventHash: strings.Repeat("a", 64), ChainHash: strings.Repeat("b", 64),
	}
}

func journalEvents(first, last int64) []*destination.Event {
	var events []*destination.Event
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
	var got event.Event
	must.OK(t, json.Unmarshal(encoded, &got))
	must.OK(t, got.Validate())
	attributes := map[string]string{
		"specversion": got.SpecVersion(), "id": got.ID(), "source": got.Source(), "type": got.Type(), "subject": got.Subject(),
		"time": got.Time().Format(time.RFC3339Nano), "datacontenttype": got.DataContentType(),
	}
	for name, value := range got.Extensions() {
		attributes[name] = fmt.Sprintf("%T %v", value, value)
	}
	diff := cmp.Diff(map[string]string{
		"specversion": "1.0", "id": "912", "source": "urn:outboxweb:journal:j1", "type": "character.created", "subject": "c-0",
		"time": "2026-11-21T07:10:03.12Z", "datacontenttype": "application/json", "campaignid": "string c-0", "seq": "string 305",
	}, attributes)
	must.Hold(t, diff == "", "%v", diff)
	var data outbox.Event
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
		var read event.Event
		must.OK(t, json.Unmarshal(encoded, &read))
		var written bytes.Buffer
		must.OK(t, event.WriteJson(&read, &written))
		must.Equal(t, string(encoded), written.String(), "from the SDK's to ours")
	}
}

func TestTestEvent_isOfNoJournal(t *testing.T) {
	t.Parallel()
	encoded := must.Get(destination.TestEvent(destination.Source("j1"), "test-7").CloudEvent()).Or(t)
	var got event.Event
	must.OK(t, json.Unmarshal(encoded, &got))
	must.OK(t, got.Validate())
	must.Hold(t, got.ID() == "test-7" && got.Type() == destination.TestType && got.Subject() == "" && len(got.Extensions()) == 0, "got %s", encoded)
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
	for _, e := range []outbox.Event{noType, noCampaign} {
		encoded, err := destination.NewEvent(e, destination.Source("j1")).CloudEvent()
		must.Hold(t, err != nil, "written as %s", encoded)
	}
}
