package destination

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// settings are the settings of one kind of destination.
type settings struct {
	kind    kind
	file    fileSettings
	webhook webhookSettings
	nats    busSettings
	kafka   busSettings
}

type fileSettings struct {
	path        string
	rotateBytes int64 // 0 = never
	keep        int64 // rotated files; 0 = all
}

type webhookSettings struct {
	batch bool
	outbound.HTTPSettings
}

// busSettings are the settings of NATS and Kafka.
type busSettings struct {
	servers        []string // HOST:PORT
	name           string   // subject or topic
	user, password string
	hasPassword    bool
	tls            bool
	sasl           string
	caFile         string
}

// Bounds and defaults of the configuration.
const (
	longestPause  = 24 * time.Hour
	longestCall   = 10 * time.Minute
	largestBatch  = 10_000
	mostErrors    = 1_000_000
	defaultRotate = 100_000_000 // bytes
	defaultKeep   = 0           // delivered data is not ours to delete
)

// reader reads topics.
type reader struct {
	outbound.Reader
	files []Subscription // file destinations, for sameFile
}

// Parse parses the value of the configuration's key topics, which routes events to destinations.
// Variables in texts are looked up with getenv. The subscriptions are in the order of the file. An
// error is an *outbox.Refusal of kind outbox.ErrInvalid with its line, whose sentence names the key
// and no secret.
func Parse(node *yaml.Node, getenv func(string) (string, bool)) ([]Subscription, error) {
	r := &reader{Reader: outbound.Reader{Getenv: getenv}}
	var subs []Subscription
	for _, topic := range r.Entries(node, "topics") {
		subs = append(subs, r.topic(topic)...)
		if r.Err != nil {
			return nil, r.Err
		}
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return subs, nil
}

func (r *reader) topic(topic outbound.Entry) []Subscription {
	r.Check(topic, outbox.CheckSubscriptionPart("topic", topic.Name))
	fields := r.Fields(topic.Value, topic.Path, "match", "publishers")
	match := r.match(topic, fields["match"])
	publishers := r.Entries(fields["publishers"].Value, topic.Path+".publishers")
	if r.Err == nil && len(publishers) == 0 {
		r.Fail(topic.Key, topic.Path, "the topic has no publishers; add one under publishers, or remove the topic")
	}
	var subs []Subscription
	for _, publisher := range publishers {
		r.Check(publisher, outbox.CheckSubscriptionPart("publisher", publisher.Name))
		p := r.subscription(publisher)
		p.SubscriptionName = outbox.SubscriptionName{Topic: topic.Name, Publisher: publisher.Name}
		p.Match = match
		subs = append(subs, p)
		r.sameFile(publisher, p)
	}
	return subs
}

func (r *reader) match(topic, field outbound.Entry) outbox.Match {
	path := topic.Path + ".match"
	fields := r.Fields(field.Value, path, "event_types", "required_tags", "any_of_tags", "exact_tags", "campaigns")
	m := outbox.Match{
		EventTypes:   r.Texts(fields["event_types"], "[scene.*, session.started]"),
		RequiredTags: r.Texts(fields["required_tags"], "[scene.*, session.started]"),
		AnyOfTags:    r.Texts(fields["any_of_tags"], "[scene.*, session.started]"),
		Campaigns:    r.Texts(fields["campaigns"], "[scene.*, session.started]"),
	}
	for _, tag := range r.Entries(fields["exact_tags"].Value, path+".exact_tags") {
		if m.ExactTags == nil {
			m.ExactTags = map[string]string{}
		}
		m.ExactTags[tag.Name] = r.Text(tag)
	}
	at := topic.Key
	if field.Key != nil {
		at = field.Key
	}
	if r.Err == nil && m.Empty() {
		r.Fail(at, path, `the match is empty; say which events to select, or select every event with event_types: ["*"]`)
	}
	return m
}

var commonKeys = []string{"url", "poll_interval", "batch_size", "timeout", "retry_base", "retry_max", "max_errors", "failed_retry", "start"}

// everyKey returns all keys that a publisher may have, for any kind of destination.
func everyKey() []string {
	keys := slices.Clone(commonKeys)
	for _, k := range kinds() {
		for _, name := range k.keys {
			if !slices.Contains(keys, name) {
				keys = append(keys, name)
			}
		}
	}
	return keys
}

func (r *reader) subscription(publisher outbound.Entry) Subscription {
	fields := r.Fields(publisher.Value, publisher.Path, everyKey()...)
	p := Subscription{
		PollInterval: r.Pause(fields["poll_interval"], DefaultPollInterval, longestPause),
		BatchSize:    int(r.Number(fields["batch_size"], DefaultBatchSize, 1, largestBatch)),
		Timeout:      r.Pause(fields["timeout"], DefaultTimeout, longestCall),
		MaxErrors:    int(r.Number(fields["max_errors"], DefaultMaxErrors, 1, mostErrors)),
		FailedRetry:  r.Pause(fields["failed_retry"], DefaultFailedRetry, longestPause),
		Pause:        outbox.Retry{Base: r.Pause(fields["retry_base"], DefaultRetryBase, longestPause), Max: r.Pause(fields["retry_max"], DefaultRetryMax, longestPause)},
		StartAtHead:  r.Choice(fields["start"], "beginning", "head") == "head",
	}
	if r.Err == nil && p.Pause.Max < p.Pause.Base {
		r.Fail(publisher.Key, publisher.Path, "retry_max, %s, must not be less than retry_base, %s", p.Pause.Max, p.Pause.Base)
	}
	if r.Err == nil && fields["url"].Value == nil {
		r.Fail(publisher.Key, publisher.Path, "url is missing; it says where the events go, such as file:///var/lib/outboxweb/events.ndjson")
	}
	if r.Err != nil {
		return p
	}
	at := fields["url"]
	u := r.URL(at, func(scheme string) bool { _, known := kindOf(scheme).info(); return known }, knownSchemes())
	if r.Err != nil {
		return p
	}
	is, _ := kindOf(u.Scheme).info()
	r.keysOf(is, publisher, fields)
	p.URL, p.settings.kind = u.Whole, is.kind
	p.Destination = is.read(r, at, u, fields, &p.settings)
	return p
}

// keysOf refuses keys of other kinds of destinations.
func (r *reader) keysOf(k kindInfo, publisher outbound.Entry, fields map[string]outbound.Entry) {
	known := append(slices.Clone(commonKeys), k.keys...)
	for _, name := range everyKey() {
		field, given := fields[name]
		if !given || slices.Contains(known, name) {
			continue
		}
		var of []string
		for _, other := range kinds() {
			if slices.Contains(other.keys, name) {
				of = append(of, other.words)
			}
		}
		r.Fail(field.Key, publisher.Path, "%s is a key of %s, and this destination is %s; use %s", name, strings.Join(of, " and "), k.words, strings.Join(known, ", "))
		return
	}
}

func (r *reader) file(at outbound.Entry, u outbound.URL, fields map[string]outbound.Entry, s *fileSettings) string {
	s.path = u.Path
	s.rotateBytes = r.Number(fields["rotate_bytes"], defaultRotate, 0, 1<<50)
	s.keep = r.Number(fields["keep"], defaultKeep, 0, 1_000_000)
	switch {
	case u.Query != "":
		r.Fail(at.Value, at.Path, "a file: URL takes no query; its settings are keys beside url")
	case u.Authority != "" && u.Authority != "localhost", !strings.HasPrefix(s.path, "/"):
		r.Fail(at.Value, at.Path, "the path of the file must be absolute, with three slashes: file:///var/lib/outboxweb/events.ndjson")
	case strings.HasSuffix(s.path, "/") || strings.ContainsRune(s.path, 0):
		r.Fail(at.Value, at.Path, "the path must name a file, such as file:///var/lib/outboxweb/events.ndjson")
	}
	s.path = filepath.Clean(s.path)
	return "file://" + s.path
}

// sameFile refuses two subscriptions that write to the same file: their lines would mix, and each
// would rotate the other's away.
func (r *reader) sameFile(publisher outbound.Entry, p Subscription) {
	if r.Err != nil || p.settings.kind != kindFile {
		return
	}
	for _, other := range r.files {
		path, taken := p.settings.file.path, other.settings.file.path
		if path == taken || rotationNumber(path, taken) > 0 || rotationNumber(taken, path) > 0 {
			r.Fail(publisher.Key, publisher.Path+".url", "%s writes the same file, or its rotated ones, as %s; give each publisher a file of its own", p.SubscriptionName, other.SubscriptionName)
			return
		}
	}
	r.files = append(r.files, p)
}

func (r *reader) webhook(at outbound.Entry, u outbound.URL, fields map[string]outbound.Entry, s *webhookSettings) string {
	s.batch = r.Choice(fields["format"], "structured", "batch") == "batch"
	s.HTTPSettings = r.HTTP(at, u, fields)
	return r.Shown(at, u)
}
