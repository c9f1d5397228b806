package destination

import (
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// kind is a kind of destination: the scheme of its URL, https also for http.
type kind string

const (
	kindLog     kind = "log"
	kindFile    kind = "file"
	kindWebhook kind = "https"
	kindNATS    kind = "nats"
	kindKafka   kind = "kafka"

	kindStatistics kind = "statistics"
)

// kindInfo describes a kind of destination.
type kindInfo struct {
	kind    kind
	example string   // of its URL
	words   string   // for sentences
	keys    []string // configuration keys that not all kinds have
	// read parses the rest of the URL and the kind's keys, and returns the URL without secrets.
	read func(r *reader, at outbound.Entry, u outbound.URL, fields map[string]outbound.Entry, s *settings) (shown string)
	open func(Subscription, Options) (Publisher, error)
}

// kinds returns all kinds, in display order. It is a function because a variable would be an
// initialization cycle.
func kinds() []kindInfo {
	return []kindInfo{
		{kindLog, "log:", "log:", nil, (*reader).log, openLog},
		{kindFile, "file:///path", "file://", []string{"rotate_bytes", "keep"}, (*reader).file, openFile},
		{kindWebhook, "https://host/path", "a webhook", []string{"format", "secret", "headers", "allow_private", "ca_file"}, (*reader).webhook, openWebhook},
		{kindNATS, "nats://host/subject", "nats://", []string{"ca_file"}, (*reader).nats, openNATS},
		{kindKafka, "kafka://host/topic", "kafka://", []string{"ca_file"}, (*reader).kafka, openKafka},
		{kindStatistics, "statistics:", "statistics:", []string{"interval", "tags", "max_distinct"}, (*reader).statistics, openStatistics},
	}
}

// kindOf returns the kind of destination of a URL's scheme, which may be unknown.
func kindOf(scheme string) kind {
	if scheme == "http" {
		return kindWebhook
	}
	return kind(scheme)
}

// info returns the description of a kind; false if there is none.
func (k kind) info() (kindInfo, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(known kindInfo) bool { return known.kind == k })
	if i < 0 {
		return kindInfo{}, false
	}
	return all[i], true
}

// knownSchemes lists examples of all URLs for a sentence.
func knownSchemes() string {
	var examples []string
	for _, k := range kinds() {
		examples = append(examples, k.example)
	}
	return event.OrList(examples)
}
