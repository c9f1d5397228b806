package event_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

func whole() event.Event {
	return event.Event{
		CampaignID: "c-17", Seq: 4, Position: 912, EventID: "0192", EventType: "character.created",
		OccurredAt: time.Date(2026, 11, 21, 7, 10, 3, 120_000_000, time.UTC), RecordedAt: time.Date(2026, 11, 21, 7, 10, 4, 0, time.UTC),
		ActorType: "participant", ActorID: "p-1", EntityType: "character", EntityID: "ch-3",
		SessionID: "s-1", RequestID: "r-1", CorrelationID: "co-1", CausationID: "ca-1",
		Tags: json.RawMessage(`{"wallet_id":"w-1"}`), Metadata: json.RawMessage(`{"v":2}`), Payload: json.RawMessage(`{"name":"Ash"}`),
	}
}

// The hashes are stored with every event and compared forever: they must never change.
func TestContentHash_isStable(t *testing.T) {
	t.Parallel()
	e := whole()
	must.Equal(t, e.ContentHash(), "46593d46293aad19913c7875146e936aec8dec16af454563d1548f14b509f9fb", "the hash of the event")
	must.Equal(t, event.NextChainHash("", 1, e.ContentHash()), "29eec31d451c89e228e39b4fb229d9938dc40a595e850b7d53bb265bfa10d6b3", "the first link of the chain")
	got, want := event.NextChainHash(strings.Repeat("ab", 32), 912, e.ContentHash()), "2363e6012480423bd6bcf2453d8acc0aae94c676f56bec6b7c4b6cf4a0a0429b"
	must.Hold(t, got == want, "a later link of the chain is %s, want %s", got, want)
}

func TestContentHash_coversWhatTheWriterSaidAndNothingElse(t *testing.T) {
	t.Parallel()
	plain := whole()
	for _, name := range []string{"campaign_id", "event_id", "event_type", "actor_type", "actor_id", "entity_type", "entity_id", "session_id", "request_id", "correlation_id", "causation_id", "occurred_at", "tags", "metadata", "payload"} {
		e := whole()
		must.OK(t, json.Unmarshal([]byte(fmt.Sprintf(`{%q:%s}`, name, cmp.Or(map[string]string{"occurred_at": `"2026-11-21T07:10:03.120001Z"`, "tags": "{}", "metadata": "{}", "payload": "{}"}[name], `"x"`))), &e))
		must.Hold(t, e.ContentHash() != plain.ContentHash(), "another %s leaves the hash as it was", name)
		must.Equal(t, event.DifferingFields(plain, e), []string{name}, "the events differ in")
	}
	// Content moved from one field to the next is another fact.
	text, document := whole(), whole()
	text.ActorType, text.ActorID = "participantp-1", ""
	document.Tags, document.Metadata = document.Metadata, document.Tags
	must.Hold(t, text.ContentHash() != plain.ContentHash() && document.ContentHash() != plain.ContentHash(), "content may move from one field to another")
	assigned := whole()
	assigned.Seq, assigned.Position, assigned.RecordedAt, assigned.EventHash, assigned.ChainHash = 9, 9, time.Time{}, "x", "x"
	must.Hold(t, assigned.ContentHash() == plain.ContentHash() && event.DifferingFields(assigned, plain) == nil, "what the store assigns changes the hash")
}

func TestDifferingFields_disregardsTheOrderOfKeysOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":{"c":[1,2],"d":null}}`, `{"b":{"d":null,"c":[1,2]},"a":1}`, true},
		{`{"a":"\u00fc"}`, `{"a":"ü"}`, true},
		{`{"a":12345678901234567890123}`, `{"a":12345678901234567890124}`, false},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":1.0}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":"<"}`, `{"a":"\u003c"}`, true},
	} {
		a, b := whole(), whole()
		for name, field := range map[string]func(*event.Event) *json.RawMessage{
			"payload":  func(e *event.Event) *json.RawMessage { return &e.Payload },
			"metadata": func(e *event.Event) *json.RawMessage { return &e.Metadata },
		} {
			a, b := a, b
			*field(&a), *field(&b) = json.RawMessage(c.a), json.RawMessage(c.b)
			var want []string
			if !c.same {
				want = []string{name}
			}
			must.Hold(t, slices.Equal(event.DifferingFields(a, b), want) && slices.Equal(event.DifferingFields(b, a), want), "%s and %s: they differ in %v, want %v", c.a, c.b, event.DifferingFields(a, b), want)
		}
		a.Payload = json.RawMessage(c.a)
		must.Hold(t, len(event.DifferingFields(a, b)) == 1 && string(a.Payload) == c.a, "comparing changed the event")
	}
}

func TestNormalize_isIdempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.Custom(func(t *rapid.T) json.RawMessage {
			text := must.Get(json.MarshalIndent(rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "fields"), "", rapid.StringOf(rapid.SampledFrom([]rune(" \t"))).Draw(t, "indent"))).Or(t)
			return text
		})
		e := event.Event{
			CampaignID: rapid.String().Draw(t, "campaign"), EventType: rapid.String().Draw(t, "type"),
			OccurredAt: time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanoseconds")),
			Payload:    object.Draw(t, "payload"), Metadata: object.Draw(t, "metadata"), Tags: object.Draw(t, "tags"),
		}
		if e.Normalize(1<<20) != nil {
			return
		}
		again := e
		must.OK(t, again.Normalize(1<<20))
		must.Need(t, again.ContentHash() == e.ContentHash() && again.OccurredAt.Equal(e.OccurredAt) && e.OccurredAt.Nanosecond()%1000 == 0, "normalized %+v, then %+v", e, again)
		// A stored event can be read as JSON and appended again.
		text := must.Get(json.Marshal(e)).Or(t)
		read, err := event.ParseEvent(text)
		must.Need(t, err == nil, "%s: %v", text, err)
		err = read.Normalize(1 << 20)
		must.Need(t, err == nil && len(event.DifferingFields(read, e)) == 0, "written %+v, read %+v, %v", e, read, err)
	})
}

// Characters that a terminal interprets, or that change the direction of text, are refused in ids;
// a condition may still select events named so before.
func TestNormalize_refusesCharactersThatObscureAnId(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"campaign_id", "event_id", "event_type", "actor_type", "actor_id", "entity_type", "entity_id", "session_id", "request_id", "correlation_id", "causation_id"} {
		for char, want := range map[string]string{
			"\x1b": "the control character U+001B", "\x7f": "the control character U+007F", "\u0080": "the control character U+0080", "\u009b": "the control character U+009B", "\u009f": "the control character U+009F",
			"\u061c": "the character U+061C, which cannot be seen", "\u200e": "U+200E", "\u200f": "U+200F", "\u202a": "U+202A", "\u202e": "U+202E", "\u2066": "U+2066", "\u2069": "U+2069",
			"\u00ad": "U+00AD", "\u200b": "U+200B", "\u200c": "U+200C", "\u200d": "U+200D", "é\u200d": "U+200D", "\u200dé": "U+200D", "\u2028": "U+2028", "\u2060": "U+2060", "\ufeff": "U+FEFF", "\ufff9": "U+FFF9",
			"\ue000": "U+E000", "\U000e0041": "U+E0041",
			"\u00a0": "", "می\u200cخواهم": "", "👩\u200d🚀": "", "❤\ufe0f": "", "ש": "", "\ufffd": "",
		} {
			text := must.Get(json.Marshal(map[string]any{"campaign_id": "c", "event_type": "x", "payload": map[string]string{char: char}, "tags": map[string]string{char: char}, field: "a" + char})).Or(t)
			e, err := event.ParseEvent(text)
			if err == nil {
				err = e.Normalize(event.DefaultMaxPayload)
			}
			if want == "" && err == nil {
				continue
			}
			var r *event.Refusal
			must.Hold(t, errors.As(err, &r) && r.Field == field && strings.HasPrefix(r.Detail, field+" contains ") && want != "" && strings.Contains(r.Detail, want), "%s with %+q: %v, want %q", field, char, err, want)
		}
	}
}

func TestParseEvent_saysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"campaign_id":"a"`:            "the JSON ends too early",
		``:                              "the JSON ends too early",
		`{"campaign_id":"a"} x`:         "data after the JSON object",
		`{"campaign_id":"a"}{}`:         "data after the JSON object",
		`{campaign_id:"a"}`:             "not JSON at byte 2",
		`[]`:                            "an event is a JSON object, not a array",
		`"x"`:                           "an event is a JSON object, not a string",
		`7`:                             "an event is a JSON object, not a number",
		`{"campaign":"a"}`:              `unknown field "campaign"`,
		`{"campaign_id":7}`:             "campaign_id cannot be a number",
		`{"campaign_id":"a","seq":"1"}`: "seq cannot be a string",
		`{"campaign_id":"a","seq":1.5}`: "seq cannot be a number 1.5",
		`{"campaign_id":"a","seq":99999999999999999999}`: "seq cannot be a number",
		`{"occurred_at":"yesterday"}`:                    "RFC 3339",
		`{"occurred_at":"2026-11-21T07:10:03+24:00"}`:    "RFC 3339",
		`{"recorded_at":"2026-11-21T7:10:03Z"}`:          "RFC 3339",
		`{"occurred_at":"2026-11-21 07:10:03Z"}`:         "RFC 3339",
		`{"event_id":"a","event_id":"a"}`:                "event_id is given twice",
		`{"payload":{"a":1},"payload":{"a":2}}`:          "payload is given twice",
		`{"event_id":"a","event\u005fid":"b"}`:           "event_id is given twice",
		`{"Campaign_ID":"a"}`:                            `unknown field "Campaign_ID"`,
		`{"event_id":"\ud800"}`:                          "event_id contains half a surrogate pair",
		`null`:                                           "an event is a JSON object, not a null",
		`{"occurred_at":7}`:                              "RFC 3339",
		"{\"campaign_id\":\"\xff\"}":                     "not valid UTF-8 (byte 17)",
	} {
		_, err := event.ParseEvent([]byte(line))
		must.Hold(t, errors.Is(err, event.ErrInvalid) && strings.Contains(fmt.Sprint(err), want), "%s: got error %v, want it to say %q", line, err, want)
	}
	var r *event.Refusal
	_, err := event.ParseEvent([]byte(`{"actor":"x"}`))
	must.Hold(t, errors.As(err, &r) && r.Field == "actor", "got error %+v, want it to name the unknown field", err)
}

// Each field is read and written by its JSON name alone, and by each kind of white space.
func TestParseEvent_readsWhatEncodingJSONReads(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		" {\"campaign_id\" : \"c\\u00e9\\\"\" ,\t\"seq\":\r 4,\n\"payload\" : { \"a\" : [ \"]}\\\\\" , {\"b\":{}} ] } , \"tags\":null,\"altered\":true } ",
		`{"event_type":"a,b","occurred_at":"2026-11-21T07:10:03.12+14:00","recorded_at":null,"position":912,"redacted":["payload.a"],"skipped":{"id":7},"metadata":{}}`,
		`{}`, `{"payload":7}`, `{"payload":null,"event_id":null,"actor_id":""}`,
	} {
		var want event.Event
		must.OK(t, json.Unmarshal([]byte(line), &want))
		got, err := event.ParseEvent([]byte(line))
		must.OK(t, err)
		must.Equal(t, got, want, line)
	}
}

func TestParseTime_isRFC3339(t *testing.T) {
	t.Parallel()
	grammar := regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
	want := time.Date(2026, 11, 21, 7, 10, 3, 120e6, time.UTC)
	for _, text := range []string{"2026-11-21T07:10:03.12Z", "2026-11-21t07:10:03.12z", "2026-11-21T08:10:03.12+01:00", "2026-11-20T07:11:03.120-23:59"} {
		got, known := event.ParseTime(text)
		must.Hold(t, known && got.Equal(want), "%s is %v", text, got)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`2026-11-2[0-9][Tt ]([01]?[0-9]|24|60):[0-6][0-9]:[0-6][0-9]([.,][0-9]{1,11})?([Zz]|[+-](1[0-9]|2[0-9]|[0-9]):?[0-9]{2}|)`).Draw(t, "text")
		_, known := event.ParseTime(text)
		must.Hold(t, !known || grammar.MatchString(text), "%s is taken", text)
		upper := strings.ToUpper(text)
		_, err := time.Parse(time.RFC3339Nano, upper)
		must.Hold(t, err != nil || !grammar.MatchString(text) || known, "%s is refused", text)
	})
}

func TestNormalize_refusesHalfACharacter(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"payload", "metadata", "tags"} {
		for text, ok := range map[string]bool{`\ud800`: false, `\ud800A`: false, `a\udc00`: false, `\uD83D\u0041`: false, `\ud83d\ude00`: true, `\\ud800`: true, `A`: true} {
			e := whole()
			*map[string]*json.RawMessage{"payload": &e.Payload, "metadata": &e.Metadata, "tags": &e.Tags}[field] = json.RawMessage(`{"k": "` + text + `"}`)
			err := e.Normalize(event.DefaultMaxPayload)
			var r *event.Refusal
			half := errors.As(err, &r) && r.Field == field && strings.Contains(r.Detail, "half a surrogate pair")
			must.Hold(t, ok == (err == nil) && ok != half, "%s of %s: %v", text, field, err)
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"campaign_id":"c-1","event_type":"x","payload":{"a":[1,{"b":"\u0000"}]},"tags":{"k":"v"}}`))
	f.Add([]byte(`{"campaign_id":"\ud800","payload":{}}`))
	f.Add([]byte("{\"payload\":{\"\\\\u0000\":1}}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := event.ParseEvent(line)
		if err == nil {
			err = e.Normalize(1 << 10)
		}
		var r *event.Refusal
		must.Need(t, err == nil || errors.As(err, &r) && r.Detail != "", "got error %v, want a sentence", err)
	})
}

// An event from the API's answer can be appended again; writers cannot set whether it is skipped, and that is not hashed.
func TestNormalize_forgetsWhetherTheEventIsSkipped(t *testing.T) {
	t.Parallel()
	plain := must.Get(event.ParseEvent([]byte(`{"campaign_id":"a","event_type":"x","payload":{}}`))).Or(t)
	e, err := event.ParseEvent([]byte(`{"campaign_id":"a","event_type":"x","payload":{},"skipped":{"id":1,"seq":1}}`))
	must.Need(t, err == nil && e.Skipped != nil, "parsed %+v, %v", e, err)
	for _, one := range []*event.Event{&plain, &e} {
		must.OK(t, one.Normalize(event.DefaultMaxPayload))
	}
	must.Hold(t, e.Skipped == nil && e.ContentHash() == plain.ContentHash(), "normalized to %+v", e)
}

func TestNormalize_refusesAnEventThatWasReadWithSomethingHidden(t *testing.T) {
	t.Parallel()
	e := event.Event{CampaignID: "c", EventType: "x", Payload: json.RawMessage(`{"password":"[redacted]"}`), Redacted: []string{"payload.password"}}
	var refusal *event.Refusal
	err := e.Normalize(event.DefaultMaxPayload)
	must.Hold(t, errors.As(err, &refusal) && refusal.Field == "redacted", "it is not refused: %v", err)
	e.Redacted = []string{}
	must.OK(t, e.Normalize(event.DefaultMaxPayload))
	must.Hold(t, e.Redacted == nil, "one with nothing hidden: %q", e.Redacted)
}
