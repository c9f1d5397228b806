package destination

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.yaml.in/yaml/v3"

	"outboxweb/internal/outbox"
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
	batch        bool
	signers      []*standardwebhooks.Webhook
	headers      map[string]string
	allowPrivate bool
	caFile       string
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
	leastPause    = 10 * time.Millisecond
	longestPause  = 24 * time.Hour
	longestCall   = 10 * time.Minute
	largestBatch  = 10_000
	mostErrors    = 1_000_000
	defaultRotate = 100_000_000 // bytes
	defaultKeep   = 0           // delivered data is not ours to delete
)

// Parse parses the value of the configuration's key topics, which routes events to destinations.
// Variables in texts are looked up with getenv. The subscriptions are in the order of the file. An
// error is an *outbox.Refusal of kind outbox.ErrInvalid with its line, whose sentence names the key
// and no secret.
func Parse(node *yaml.Node, getenv func(string) (string, bool)) ([]Subscription, error) {
	r := &reader{getenv: getenv}
	var subs []Subscription
	for _, topic := range r.entries(node, "topics") {
		subs = append(subs, r.topic(topic)...)
		if r.err != nil {
			return nil, r.err
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return subs, nil
}

func (r *reader) topic(topic entry) []Subscription {
	r.check(topic, outbox.CheckSubscriptionPart("topic", topic.name))
	fields := r.fields(topic.value, topic.path, "match", "publishers")
	match := r.match(topic, fields["match"])
	publishers := r.entries(fields["publishers"].value, topic.path+".publishers")
	if r.err == nil && len(publishers) == 0 {
		r.fail(topic.key, topic.path, "the topic has no publishers; add one under publishers, or remove the topic")
	}
	var subs []Subscription
	for _, publisher := range publishers {
		r.check(publisher, outbox.CheckSubscriptionPart("publisher", publisher.name))
		p := r.subscription(publisher)
		p.SubscriptionName = outbox.SubscriptionName{Topic: topic.name, Publisher: publisher.name}
		p.Match = match
		subs = append(subs, p)
		r.sameFile(publisher, p)
	}
	return subs
}

func (r *reader) match(topic, field entry) outbox.Match {
	path := topic.path + ".match"
	fields := r.fields(field.value, path, "event_types", "required_tags", "any_of_tags", "exact_tags", "campaigns")
	m := outbox.Match{
		EventTypes:   r.texts(fields["event_types"]),
		RequiredTags: r.texts(fields["required_tags"]),
		AnyOfTags:    r.texts(fields["any_of_tags"]),
		Campaigns:    r.texts(fields["campaigns"]),
	}
	for _, tag := range r.entries(fields["exact_tags"].value, path+".exact_tags") {
		if m.ExactTags == nil {
			m.ExactTags = map[string]string{}
		}
		m.ExactTags[tag.name] = r.text(tag)
	}
	at := topic.key
	if field.key != nil {
		at = field.key
	}
	if r.err == nil && m.Empty() {
		r.fail(at, path, `the match is empty; say which events to select, or select every event with event_types: ["*"]`)
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

func (r *reader) subscription(publisher entry) Subscription {
	fields := r.fields(publisher.value, publisher.path, everyKey()...)
	p := Subscription{
		PollInterval: r.pause(fields["poll_interval"], DefaultPollInterval, longestPause),
		BatchSize:    int(r.number(fields["batch_size"], DefaultBatchSize, 1, largestBatch)),
		Timeout:      r.pause(fields["timeout"], DefaultTimeout, longestCall),
		MaxErrors:    int(r.number(fields["max_errors"], DefaultMaxErrors, 1, mostErrors)),
		FailedRetry:  r.pause(fields["failed_retry"], DefaultFailedRetry, longestPause),
		Pause:        outbox.Retry{Base: r.pause(fields["retry_base"], DefaultRetryBase, longestPause), Max: r.pause(fields["retry_max"], DefaultRetryMax, longestPause)},
		StartAtHead:  r.choice(fields["start"], "beginning", "head") == "head",
	}
	if r.err == nil && p.Pause.Max < p.Pause.Base {
		r.fail(publisher.key, publisher.path, "retry_max, %s, must not be less than retry_base, %s", p.Pause.Max, p.Pause.Base)
	}
	if r.err == nil && fields["url"].value == nil {
		r.fail(publisher.key, publisher.path, "url is missing; it says where the events go, such as file:///var/lib/outboxweb/events.ndjson")
	}
	if r.err != nil {
		return p
	}
	at := fields["url"]
	u := r.destination(at)
	if r.err != nil {
		return p
	}
	is, _ := u.kind.info()
	r.keysOf(is, publisher, fields)
	p.URL, p.settings.kind = u.whole, u.kind
	p.Destination = is.read(r, at, u, fields, &p.settings)
	return p
}

// keysOf refuses keys of other kinds of destinations.
func (r *reader) keysOf(k kindInfo, publisher entry, fields map[string]entry) {
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
		r.fail(field.key, publisher.path, "%s is a key of %s, and this destination is %s; use %s", name, strings.Join(of, " and "), k.words, strings.Join(known, ", "))
		return
	}
}

func (r *reader) file(at entry, u address, fields map[string]entry, s *fileSettings) string {
	s.path = u.path
	s.rotateBytes = r.number(fields["rotate_bytes"], defaultRotate, 0, 1<<50)
	s.keep = r.number(fields["keep"], defaultKeep, 0, 1_000_000)
	switch {
	case u.query != "":
		r.fail(at.value, at.path, "a file: URL takes no query; its settings are keys beside url")
	case u.authority != "" && u.authority != "localhost", !strings.HasPrefix(s.path, "/"):
		r.fail(at.value, at.path, "the path of the file must be absolute, with three slashes: file:///var/lib/outboxweb/events.ndjson")
	case strings.HasSuffix(s.path, "/") || strings.ContainsRune(s.path, 0):
		r.fail(at.value, at.path, "the path must name a file, such as file:///var/lib/outboxweb/events.ndjson")
	}
	s.path = filepath.Clean(s.path)
	return "file://" + s.path
}

// sameFile refuses two subscriptions that write to the same file: their lines would mix, and each
// would rotate the other's away.
func (r *reader) sameFile(publisher entry, p Subscription) {
	if r.err != nil || p.settings.kind != kindFile {
		return
	}
	for _, other := range r.files {
		path, taken := p.settings.file.path, other.settings.file.path
		if path == taken || rotationNumber(path, taken) > 0 || rotationNumber(taken, path) > 0 {
			r.fail(publisher.key, publisher.path+".url", "%s writes the same file, or its rotated ones, as %s; give each publisher a file of its own", p.SubscriptionName, other.SubscriptionName)
			return
		}
	}
	r.files = append(r.files, p)
}

func (r *reader) webhook(at entry, u address, fields map[string]entry, s *webhookSettings) string {
	s.batch = r.choice(fields["format"], "structured", "batch") == "batch"
	s.allowPrivate = r.flag(fields["allow_private"])
	s.caFile = r.caFile(fields["ca_file"])
	s.signers = r.signers(fields["secret"])
	s.headers = r.headers(fields["headers"])
	if r.err == nil && u.scheme == "http" && !s.allowPrivate {
		r.fail(at.value, at.path, "http:// is not encrypted and needs allow_private: true, for receivers in your own network; use https:// otherwise")
	}
	return r.webhookDestination(at, u)
}

func (r *reader) signers(field entry) []*standardwebhooks.Webhook {
	if field.value == nil {
		return nil
	}
	items := []*yaml.Node{field.value}
	if field.value.Kind == yaml.SequenceNode {
		items = field.value.Content
	}
	if len(items) == 0 {
		r.fail(field.value, field.path, "the list is empty; add a secret, or remove the key")
	}
	var signers []*standardwebhooks.Webhook
	for _, item := range items {
		secret := r.expand(entry{path: field.path, key: field.key, value: item}, verbatim)
		signer := readSecret(secret)
		if r.err == nil && signer == nil {
			r.fail(item, field.path, "a secret of Standard Webhooks begins with whsec_, followed by 24 to 64 bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)")
		}
		signers = append(signers, signer)
	}
	return signers
}

func (r *reader) headers(field entry) map[string]string {
	headers := map[string]string{}
	for _, header := range r.entries(field.value, field.path) {
		name := canonicalHeader(header.name)
		value := r.expand(header, verbatim)
		_, twice := headers[name]
		switch {
		case r.err != nil:
		case name == "":
			r.fail(header.key, field.path, "%q cannot be the name of a header", header.name)
		case ownHeader(name):
			r.fail(header.key, header.path, "the header %s is set by outboxweb; remove it", name)
		case twice:
			r.fail(header.key, header.path, "the header %s appears twice", name)
		case !headerValue(value):
			r.fail(header.value, header.path, "the value of a header must be one line of printable text")
		}
		headers[name] = value
	}
	return headers
}

func (r *reader) caFile(field entry) string {
	if field.value == nil {
		return ""
	}
	path := r.text(field)
	if r.err == nil && !filepath.IsAbs(path) {
		r.fail(field.value, field.path, "the path of the certificates must be absolute, such as /etc/outboxweb/ca.pem")
	}
	return path
}
