package destination_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq="

var environment = map[string]string{
	"HOOK_SECRET": secret, "TOKEN": "t0ken", "HOOK_URL": "https://hooks.example/services/s3cret?key=s3cret", "PASSWORD": "p@ss/w:o?r#d&%", "HOST": "hooks.example", "ODD": "s3cret:x",
}

func getenv(name string) (string, bool) {
	value, ok := environment[name]
	return value, ok
}

func parse(tb testing.TB, text string) ([]destination.Subscription, error) {
	subs, _, err := configOf(tb, text).Parse()
	return subs, err
}

func configOf(tb testing.TB, text string) destination.Config {
	var document struct {
		Topics   yaml.Node `yaml:"topics"`
		Defaults yaml.Node `yaml:"publisher_defaults"`
	}
	err := yaml.Unmarshal([]byte(text), &document)
	must.Need(tb, err == nil && !document.Topics.IsZero(), "%v in\n%s", err, text)
	c := destination.Config{Topics: &document.Topics, Getenv: getenv}
	if !document.Defaults.IsZero() {
		c.Defaults = &document.Defaults
	}
	return c
}

// subscriptionOf is the only subscription of a topic of all events with one publisher.
func subscriptionOf(tb testing.TB, lines ...string) destination.Subscription {
	return must.Get(parse(tb, "topics:\n  scenes:\n    match: {event_types: [\"*\"]}\n    publishers:\n      p:\n        "+strings.Join(lines, "\n        ")+"\n")).Or(tb)[0]
}

func TestParse_readsWhatIsConfigured(t *testing.T) {
	t.Parallel()
	subs := must.Get(parse(t, `
mode: outbox_apply_only
topics:
  scenes:
    match:
      event_types: [scene.*, session.started]
      required_tags: [wallet_id]
      any_of_tags: [a, b]
      exact_tags: {region: eu}
      campaigns: [c-1]
    publishers:
      archive: {url: "file:///var/lib/./outboxweb/scenes.ndjson"}
      hook:
        url: https://me:${PASSWORD}@${HOST}/in/${TOKEN}?a=${PASSWORD}&k=${TOKEN} # where a value adds no parameters
        format: batch
        secret: [ "${HOOK_SECRET}", whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ]
        headers: {Authorization: "Bearer ${TOKEN}", x-price: "$${5}"}
        poll_interval: 250ms
        batch_size: 500
        timeout: 3s
        max_errors: 3
        failed_retry: 1m
        retry_base: 2s
        retry_max: 30s
        start: head
  all:
    match: {event_types: ["*"]}
    publishers:
      bus: {url: "nats://user:${PASSWORD}@n1,n2:4223/outboxweb.all?tls=true"}
      stream: {url: "kafka://b1:9092,[::1]/all"}
      whole: {url: "${HOOK_URL}"}
      log: {url: "log:"}
`)).Or(t)
	scenes := subscription.Match{
		EventTypes: []string{"scene.*", "session.started"}, RequiredTags: []string{"wallet_id"}, AnyOfTags: []string{"a", "b"},
		ExactTags: map[string]string{"region": "eu"}, Campaigns: []string{"c-1"},
	}
	all := subscription.Match{EventTypes: []string{"*"}}
	sub := func(topic, publisher string, match subscription.Match, url, shown string) destination.Subscription {
		return destination.Subscription{SubscriptionName: operator.SubscriptionName{Topic: topic, Publisher: publisher}, Match: match, URL: url, Destination: shown, Settings: destination.DefaultSettings()}
	}
	hook := sub("scenes", "hook", scenes, "https://me:p%40ss%2Fw%3Ao%3Fr%23d%26%25@hooks.example/in/t0ken?a=p%40ss%2Fw%3Ao%3Fr%23d%26%25&k=t0ken", "https://hooks.example/in/…?…")
	hook.StartAtHead = true
	hook.Settings = destination.Settings{PollInterval: 250 * time.Millisecond, BatchSize: 500, Timeout: 3 * time.Second,
		Pause: event.Retry{Base: 2 * time.Second, Max: 30 * time.Second}, MaxErrors: 3, FailedRetry: time.Minute, Idle: subscription.DefaultIdleBackoff}
	want := []destination.Subscription{
		sub("scenes", "archive", scenes, "file:///var/lib/./outboxweb/scenes.ndjson", "file:///var/lib/outboxweb/scenes.ndjson"),
		hook,
		sub("all", "bus", all, "nats://user:p%40ss%2Fw%3Ao%3Fr%23d%26%25@n1,n2:4223/outboxweb.all?tls=true", "nats://n1:4222,n2:4223/outboxweb.all"),
		sub("all", "stream", all, "kafka://b1:9092,[::1]/all", "kafka://b1:9092,[::1]:9092/all"),
		sub("all", "whole", all, environment["HOOK_URL"], "https://hooks.example/…?…"),
		sub("all", "log", all, "log:", "log:"),
	}
	diff := cmp.Diff(want, subs, cmpopts.IgnoreUnexported(destination.Subscription{}))
	must.Hold(t, diff == "", "%v", diff)
}

func TestParse_takesSettingsOfThePublisherThenItsTopicThenAll(t *testing.T) {
	t.Parallel()
	subs := must.Get(parse(t, `
publisher_defaults: {batch_size: 500, poll_interval: 2s, idle_after: 5, idle_factor: 1.5, idle_longest: 30s, max_errors: 3}
topics:
  scenes:
    match: {event_types: ["*"]}
    publisher_defaults: {batch_size: 50, idle_backoff: false}
    publishers:
      own: {url: "log:", batch_size: 5, idle_backoff: true}
      topic: {url: "log:"}
  other:
    match: {event_types: ["*"]}
    publishers:
      all: {url: "log:"}
`)).Or(t)
	all := destination.DefaultSettings()
	all.BatchSize, all.PollInterval, all.MaxErrors = 500, 2*time.Second, 3
	all.Idle = subscription.IdleBackoff{After: 5, Factor: 1.5, Longest: 30 * time.Second}
	own, topic := all, all
	own.BatchSize, topic.BatchSize, topic.Idle.Off = 5, 50, true
	for i, want := range []destination.Settings{own, topic, all} {
		must.Equal(t, subs[i].Settings, want, subs[i].SubscriptionName)
	}
	shown := subs[1].Definition().Settings
	want := (subscription.PublisherSettings{BatchSize: 50, PollSeconds: 2, TimeoutSeconds: 10, RetryBaseSeconds: 1, RetryMaxSeconds: 60, MaxErrors: 3, FailedRetrySeconds: 300})
	must.Hold(t, shown == want, "shown as %+v", shown)
}

func TestParse_takesNoTopics(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"topics:", "topics: {}", "topics: null"} {
		must.Equal(t, len(must.Get(parse(t, text)).Or(t)), 0, text)
	}
}

// Each text has one mistake, in the line that ends in #!.
func TestParse_namesTheLineOfTheMistake(t *testing.T) {
	t.Parallel()
	const start = "topics:\n  scenes:\n    match: {event_types: [a]}\n    publishers:\n      p:\n"
	publisher := func(lines ...string) string { return start + "        " + strings.Join(lines, "\n        ") }
	url := func(url string) string { return publisher("url: " + url + " #!") }
	hook := func(lines ...string) string {
		return publisher(append([]string{"url: https://hooks.example/in"}, lines...)...)
	}
	for _, test := range []struct{ name, text, says string }{
		{"unknown key of a topic", "topics:\n  scenes:\n    matches: {} #!", `topics.scenes: unknown key "matches"; use match, publishers`},
		{"unknown key of a publisher", publisher("ulr: 'log:' #!"), `topics.scenes.publishers.p: unknown key "ulr"; use url,`},
		{"topics is a list", "topics: #!\n", ""},
		{"topic twice", start + "        url: 'log:'\n  scenes: {} #!", `topics: "scenes" appears twice; the first is in line 2`},
		{"name of a topic", "topics:\n  Scenes: {} #!", `topic "Scenes" must begin with`},
		{"name of a publisher", "topics:\n  scenes:\n    match: {event_types: [a]}\n    publishers:\n      a/b: {url: 'log:'} #!", `publisher "a/b" must begin with`},
		{"name is a number", "topics:\n  1: {} #!", "the key 1 must be a string; put it in quotes"},
		{"no match", "topics:\n  scenes: #!\n    publishers: {p: {url: 'log:'}}", `the match is empty; say which events to select, or select every event with event_types: ["*"]`},
		{"empty match", "topics:\n  scenes:\n    match: {} #!\n    publishers: {p: {url: 'log:'}}", "topics.scenes.match: the match is empty"},
		{"empty list", "topics:\n  scenes:\n    match:\n      campaigns: [] #!", "the list is empty"},
		{"number for a text", "topics:\n  scenes:\n    match:\n      campaigns: [1] #!", "must be a string; put it in quotes"},
		{"bool for a tag", "topics:\n  scenes:\n    match:\n      exact_tags: {vip: true} #!", "topics.scenes.match.exact_tags.vip: must be a string; put it in quotes"},
		{"no publishers", "topics:\n  scenes: #!\n    match: {event_types: [a]}", "the topic has no publishers"},
		{"no url", start[:len(start)-1] + " #!\n        batch_size: 1", "topics.scenes.publishers.p: url is missing"},
		{"alias", "topics:\n  a: &a\n    match: {event_types: [a]}\n    publishers: {p: {url: 'log:'}}\n  b: *a #!", "YAML references"},
		{"alias as a text", "topics:\n  a:\n    match: {event_types: [&x a], campaigns: [*x]} #!", "YAML references"},

		{"unknown scheme", url("ftp://h/x"), "unknown scheme ftp:; use log:, file:///path, https://host/path, nats://"},
		{"no scheme", url("hooks.example/in"), "a URL begins with its scheme"},
		{"url is a list", url("[a]"), "topics.scenes.publishers.p.url: must be a string"},
		{"log with a path", url("log:/x"), "log: takes nothing after the colon"},
		{"statistics of too many", publisher("url: 'statistics:'", "max_distinct: 10001 #!"), "max_distinct: must be from 1 to 10000"},
		{"unknown default", start + "        url: 'log:'\npublisher_defaults:\n  start: head #!", `publisher_defaults: unknown key "start"; use poll_interval, idle_backoff, `},
		{"default out of bounds", "publisher_defaults: {idle_factor: 0.5} #!\n" + start + "        url: 'log:'", "publisher_defaults.idle_factor: must be a number from 1 to 100"},
		{"default of a topic", "topics:\n  scenes:\n    match: {event_types: [a]}\n    publisher_defaults: {batch_size: 0} #!\n    publishers: {p: {url: 'log:'}}", "topics.scenes.publisher_defaults.batch_size: must be from 1 to 10000, not 0"},
		{"retry below a default", "publisher_defaults: {retry_base: 5s}\n" + publisher("url: 'log:'")[:len(publisher("url: 'log:'"))-len("\n        url: 'log:'")] + " #!\n        url: 'log:'\n        retry_max: 2s", "retry_max, 2s, must not be less than retry_base, 5s"},
		{"file is relative", url("file:x.ndjson"), "must be absolute"},
		{"file on a host", url("file://var/x.ndjson"), "must be absolute"},
		{"file is a directory", url("file:///var/"), "must name a file"},
		{"file with a query", url("file:///x?rotate=1"), "takes no query"},
		{"bad escape", url("file:///x%zz"), "two hexadecimal digits"},
		{"http", url("http://127.0.0.1/x"), "http:// is not encrypted and needs allow_private: true"},
		{"does not name a host", url("https:///x"), "is not a URL"},
		{"bad port", url("https://h:99999/x"), "is not a URL"},
		{"fragment", url("https://h/x#y"), "must not contain #"},
		{"no subject", url("nats://h:4222"), "the subject must follow the host"},
		{"subject with a wildcard", url("nats://h/a.*"), "without * and >"},
		{"no servers", url("nats:///subject"), "the servers must follow"},
		{"password twice", url("nats://u:hunter2@h1,u:hunter2@h2/s"), "appear once, before the first server"},
		{"unknown parameter", url("nats://h/s?sasl=plain"), "after the ? only tls"},
		{"tls", url("kafka://h/s?tls=yes"), "tls must be true or false"},
		{"topic of Kafka", url("kafka://h/a/b"), "the topic must follow"},
		{"sasl", url("kafka://u:p@h/t?sasl=digest"), "sasl must be plain or scram-sha-256"},
		{"sasl without a name", url("kafka://h/t?sasl=plain"), "sasl needs a name and a password"},
		{"name without sasl", url("kafka://u:p@h/t"), "need ?sasl="},
		{"variable not set", url("https://h/${NOT_SET}"), "the variable NOT_SET is not set"},
		{"variable without end", url("https://h/${TOKEN"), "${ begins the name of a variable"},

		{"key of a file", hook("keep: 3 #!"), "keep is a key of file://, and this destination is a webhook; use url,"},
		{"key of a webhook", publisher("url: file:///x", "secret: x #!"), "secret is a key of a webhook, and this destination is file://"},
		{"key of several kinds", publisher("url: file:///x", "ca_file: /x #!"), "ca_file is a key of a webhook and nats:// and kafka://"},
		{"batch_size", hook("batch_size: 0 #!"), "must be from 1 to 10000, not 0"},
		{"batch_size is a text", hook("batch_size: many #!"), "must be a whole number from 1 to 10000"},
		{"poll_interval", hook("poll_interval: 9ms #!"), "must be from 10ms to 24h0m0s, not 9ms"},
		{"poll_interval without unit", hook("poll_interval: 5 #!"), "must be a duration with its unit"},
		{"timeout", hook("timeout: 11m #!"), "must be from 10ms to 10m0s"},
		{"max_errors", hook("max_errors: 0 #!"), "must be from 1 to"},
		{"failed_retry", hook("failed_retry: 1ms #!"), "must be from 10ms"},
		{"start", hook("start: end #!"), "must be beginning or head"},
		{"rotate_bytes", publisher("url: file:///x", "rotate_bytes: -1 #!"), "must be from 0 to"},
		{"format", hook("format: binary #!"), "must be structured or batch"},
		{"allow_private", hook("allow_private: sometimes #!"), "must be true or false"},
		{"ca_file", hook("ca_file: ca.pem #!"), "must be absolute"},
		{"secret", hook("secret: hunter2 #!"), "a secret of Standard Webhooks begins with whsec_"},
		{"short secret", hook("secret: whsec_AAAA #!"), "24 to 64 bytes"},
		{"no secrets", hook("secret: [] #!"), "the list is empty"},
		{"header's name", hook("headers: {'a b': x} #!"), `"a b" cannot be the name of a header`},
		{"header's value", hook(`headers: {a: "x\ny"} #!`), "one line of printable text"},
		{"own header", hook("headers: {content-type: x} #!"), "Content-Type is set by outboxweb"},
		{"header of signatures", hook("headers: {webhook-id: x} #!"), "Webhook-Id is set by outboxweb"},
		{"header twice", hook("headers: {x-a: x, X-A: y} #!"), "the header X-A appears twice"},
		{"header's variable", hook("headers: {a: \"${NOT_SET}\"} #!"), "the variable NOT_SET is not set"},
		{"same file", publisher("url: file:///var/x") + "\n      q: {url: file:///var/../var/x} #!", "scenes/q writes the same file, or its rotated ones, as scenes/p"},
		{"rotated file of another", publisher("url: file:///var/x") + "\n      q: {url: file:///var/x.000012} #!", "scenes/q writes the same file"},
		{"NUL in a path", url("file:///var/x%00"), "must name a file"},
		{"DEL in a URL", publisher(`url: "https://h/\x7f" #!`), "or control characters"},
		{"long subject", url("nats://h/" + strings.Repeat("s", 251)), "the subject must follow"},
		{"topic of dots", url("kafka://h/.."), "the topic must follow"},
		{"parameter twice", url("kafka://h/t?tls=true&tls=false"), "once each"},
		{"long secret", hook("secret: whsec_" + strings.Repeat("AAAA", 22) + " #!"), "24 to 64 bytes"},
		{"rotated file", publisher("url: file:///var/x.000012") + "\n      q: {url: file:///var/x} #!", "scenes/q writes the same file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.says == "" {
				test.text, test.says = "topics: [a] #!", "topics: must be a mapping"
			}
			_, err := parse(t, test.text)
			var refusal *event.Refusal
			must.Need(t, errors.As(err, &refusal) && errors.Is(err, event.ErrInvalid), "got %v", err)
			before, _, _ := strings.Cut(test.text, "#!")
			must.Equal(t, refusal.Line, strings.Count(before, "\n")+1, "the line of", err)
			must.Hold(t, strings.Contains(refusal.Detail, test.says), "%q does not say %q", refusal.Detail, test.says)
			for _, word := range []string{"hunter2", "t0ken", "MfKQ"} {
				must.Hold(t, !strings.Contains(refusal.Detail, word), "%q tells a secret", refusal.Detail)
			}
		})
	}
}

func TestParse_keepsSecretsOutOfErrors(t *testing.T) {
	t.Parallel()
	const password = "s3cret"
	for _, url := range []string{
		"https://me:" + password + "/x@h/in", "https://me:" + password + "@h:99999/", "https://me:" + password + "@h/%zz", "nats://me:" + password + "/x@h/s",
		"kafka://me:" + password + "@h/t", "kafka://me:%zz" + password + "@h/t?sasl=plain", "http://me:" + password + "@h/in", "me:" + password + "@h/in",
		"nats://me:" + password + "@h/a b", "https://h/in?key=" + password + "#x", "nats://h/s?key=" + password, "${ODD}",
	} {
		_, err := parse(t, fmt.Sprintf("topics: {t: {match: {campaigns: [c]}, publishers: {p: {url: '%s'}}}}", url))
		must.Hold(t, err != nil && !strings.Contains(err.Error(), password), "%s: %v", url, err)
	}
}

func TestOpen_readsTheCertificates(t *testing.T) {
	t.Parallel()
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	must.OK(t, os.WriteFile(notPEM, []byte("no certificate"), 0o600))
	for _, url := range []string{"https://h/in", "nats://h/s?tls=true", "kafka://h/t?tls=true"} {
		for path, says := range map[string]string{"/dev/null": "not a regular file", notPEM: "has no certificate in PEM", notPEM + "x": "no such file"} {
			_, err := subscriptionOf(t, "url: "+url, "ca_file: "+path).Open(destination.Options{})
			must.Hold(t, errors.Is(err, event.ErrSetup) && strings.Contains(err.Error(), "ca_file of scenes/p") && strings.Contains(err.Error(), says), "%s with %s: %v", url, path, err)
		}
	}
}

func TestSubscription_isLoggedWithoutSecrets(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	sub := subscriptionOf(t, "url: https://me:s3cret@h/in?key=s3cret", "secret: "+secret)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("pair", "pair", sub)
	fmt.Fprintf(&out, "%v %+v", sub, sub)
	must.Hold(t, !strings.Contains(out.String(), "s3cret") && strings.Contains(out.String(), "https://h/in?"), "logged %s", out.String())
}

// The examples in the documentation, and the one that the console shows, are valid configurations.
func TestParse_readsTheDocumentation(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../../../docs/publishers.md")).Or(t)
	examples := regexp.MustCompile("(?s)\n```yaml\n((?:publisher_defaults|topics):.*?)\n```\n").FindAllStringSubmatch(string(text), -1)
	console := must.Get(os.ReadFile("../../../web/templates/delivery/publishers.go")).Or(t)
	examples = append(examples, regexp.MustCompile("(?s) exampleTopics = `(.*?)`").FindStringSubmatch(string(console)))
	must.Need(t, len(examples) >= 6 && examples[len(examples)-1] != nil, "only %d examples were found", len(examples))
	for _, example := range examples {
		c := configOf(t, example[1])
		c.Getenv = func(name string) (string, bool) {
			if strings.HasSuffix(name, "SECRET") {
				return secret, true
			}
			return "x", true
		}
		subs, _, err := c.Parse()
		must.Hold(t, err == nil && len(subs) != 0, "%v in\n%s", err, example[1])
	}
}

// openAndClose opens and closes the publishers whose files can be read and written.
func openAndClose(t *testing.T, subs []destination.Subscription) {
	for _, p := range subs {
		if publisher, err := p.Open(destination.Options{}); err == nil {
			must.OK(t, publisher.Close())
		}
	}
}

func FuzzTopics(f *testing.F) {
	f.Add("topics:\n  scenes:\n    match: {event_types: [a]}\n    publishers:\n      p: {url: 'https://u:${TOKEN}@h:1/x?y', secret: [whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA], headers: {a: b}}\n")
	f.Add("topics: {a: &a {match: {campaigns: [c]}, publishers: {p: {url: 'kafka://u:p@h,[::1]:2/t?sasl=plain&tls=true'}}}, b: *a}")
	f.Add("topics: {a: {<<: {match: x}, publishers: {p: {url: 'nats://t@h/s.t', poll_interval: 1h, batch_size: 0x10}, q: {url: file:///x%41, keep: 1_0}}}}")
	f.Add("topics: !!binary aGVsbG8=")
	f.Add("topics: {? [a] : b}")
	f.Fuzz(func(t *testing.T, text string) {
		var document yaml.Node
		if yaml.Unmarshal([]byte(text), &document) != nil || len(document.Content) == 0 {
			return
		}
		root := document.Content[0]
		nodes := append([]*yaml.Node{root}, root.Content...)
		for _, node := range nodes {
			subs, _, err := destination.Config{Topics: node, Getenv: getenv}.Parse()
			var refusal *event.Refusal
			must.Need(t, err == nil || errors.As(err, &refusal) && refusal.Line >= 1 && refusal.Detail != "", "%#v", err)
			openAndClose(t, subs)
		}
	})
}

// FuzzDestination parses any destination URL, with any value of the variable in it, and any header.
// It does not use the network. A refusal does not contain the variable's value.
func FuzzDestination(f *testing.F) {
	for _, url := range []string{
		"log:", "file:///var/x%41.ndjson", "https://u:${V}@h:1/x?y=${V}", "http://[::1]:2/", "https://h/${V}", "${V}", "nats://t@h,[::1]:4222/s.t?tls=true", "kafka://u:${V}@h,h2:2/t?sasl=plain&tls=true",
		"HTTPS://h\\@evil.example/", "https://h/%zz", "kafka://h/..", "nats://h/a.*", "file://h/x", "javascript:alert(1)", "data:text/html,x", "//evil.example/", "https://h/a#b", "https://h/\r\nX: y", "$${V}",
	} {
		f.Add(url, "secret-of-16-bytes/@:?#%", "a value")
	}
	f.Fuzz(func(t *testing.T, url, value, header string) {
		document, err := yaml.Marshal(map[string]any{"t": map[string]any{"match": map[string]any{"event_types": []string{"*"}},
			"publishers": map[string]any{"p": map[string]any{"url": url, "headers": map[string]string{"X-A": header}}, "q": map[string]any{"url": url}}}})
		if err != nil {
			return // no text
		}
		var read yaml.Node
		if err := yaml.Unmarshal(document, &read); err != nil || len(read.Content) == 0 {
			return
		}
		subs, _, err := destination.Config{Topics: read.Content[0], Getenv: func(string) (string, bool) { return value, true }}.Parse()
		var refusal *event.Refusal
		secret := len(value) >= 16 && !strings.Contains(url, value) && !strings.Contains(header, value)
		switch {
		case err != nil && (!errors.As(err, &refusal) || refusal.Line < 1 || refusal.Detail == ""):
			t.Fatalf("%#v", err)
		case err != nil && secret && strings.Contains(err.Error(), value):
			t.Fatalf("the value %q is in the refusal %q", value, err)
		}
		openAndClose(t, subs)
	})
}
