package destination

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// settings are the settings of one kind of destination.
type settings struct {
	kind       kind
	file       fileSettings
	webhook    webhookSettings
	bus        busSettings
	statistics statisticsSettings
	functions  Functions // of a Custom subscription
	calls      *calls
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
	mostIdle      = 1_000_000 // empty polls
	mostFactor    = 100
	defaultRotate = 100_000_000 // bytes
	defaultKeep   = 0           // delivered data is not ours to delete
)

// The configuration's keys of what this package reads: TopicsKey routes events to destinations, and
// DefaultsKey has settings for all publishers, also in a topic for those of the topic.
const TopicsKey, DefaultsKey = "topics", "publisher_defaults"

// Config is the part of the configuration file that is about publishers. A nil node is an absent
// key.
type Config struct {
	Topics   *yaml.Node
	Defaults *yaml.Node
	Getenv   func(string) (string, bool) // looks up variables in texts
}

type reader struct {
	outbound.Reader
	files []Subscription // file destinations, for sameFile
}

// Parse returns the publishers that the configuration describes, in the order of the file, and the
// settings of those that configure none. An error is an *event.Refusal of kind event.ErrInvalid
// with its line, whose sentence names the key and no secret.
func (c Config) Parse() ([]Subscription, Settings, error) {
	r := &reader{Reader: outbound.Reader{Getenv: c.Getenv}}
	defaults := r.defaults(outbound.Entry{Path: DefaultsKey, Key: c.Defaults, Value: c.Defaults}, DefaultSettings())
	var subs []Subscription
	for _, topic := range r.Entries(c.Topics, TopicsKey) {
		subs = append(subs, r.topic(topic, defaults)...)
	}
	if r.Err != nil {
		return nil, defaults, r.Err
	}
	return subs, defaults, nil
}

// defaults reads settings for several publishers.
func (r *reader) defaults(at outbound.Entry, base Settings) Settings {
	return r.settings(at, r.Fields(at.Value, at.Path, settingKeys...), base)
}

func (r *reader) topic(topic outbound.Entry, defaults Settings) []Subscription {
	r.Check(topic, event.CheckName("topic", topic.Name))
	fields := r.Fields(topic.Value, topic.Path, "match", "publishers", DefaultsKey)
	match := r.match(topic, fields["match"])
	if given, is := fields[DefaultsKey]; is {
		defaults = r.defaults(given, defaults)
	}
	publishers := r.Entries(fields["publishers"].Value, topic.Path+".publishers")
	if r.Err == nil && len(publishers) == 0 {
		r.Fail(topic.Key, topic.Path, "the topic has no publishers; add one under publishers, or remove the topic")
	}
	var subs []Subscription
	for _, publisher := range publishers {
		r.Check(publisher, event.CheckName("publisher", publisher.Name))
		p := r.subscription(publisher, defaults)
		p.SubscriptionName = operator.SubscriptionName{Topic: topic.Name, Publisher: publisher.Name}
		p.Match, p.settings.calls = match, callsOf(p)
		subs = append(subs, p)
		r.sameFile(publisher, p)
	}
	return subs
}

func (r *reader) match(topic, field outbound.Entry) subscription.Match {
	path := topic.Path + ".match"
	fields := r.Fields(field.Value, path, "event_types", "required_tags", "any_of_tags", "exact_tags", "campaigns")
	m := subscription.Match{
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

var commonKeys = append([]string{"url", "start"}, settingKeys...)

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

func (r *reader) subscription(publisher outbound.Entry, defaults Settings) Subscription {
	fields := r.Fields(publisher.Value, publisher.Path, everyKey()...)
	p := Subscription{
		Settings:    r.settings(publisher, fields, defaults),
		StartAtHead: r.Choice(fields["start"], "beginning", "head") == "head",
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

func (r *reader) file(at outbound.Entry, u outbound.URL, fields map[string]outbound.Entry, all *settings) string {
	s := &all.file
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

func (r *reader) webhook(at outbound.Entry, u outbound.URL, fields map[string]outbound.Entry, all *settings) string {
	all.webhook.batch = r.Choice(fields["format"], "structured", "batch") == "batch"
	all.webhook.HTTPSettings = r.HTTP(at, u, fields)
	return r.Shown(at, u)
}
