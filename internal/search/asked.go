package search

import (
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Asked is what a reader typed into the search box: words to look for, and a time range if the text
// names one.
type Asked struct {
	Words        []string
	Since, Until time.Time
}

// ParseAsked takes the time range off the end of a search, written as for ParseRange: "order 17 14:00 14:10",
// "order 17 2026-11-21". A single time of day, or RFC 3339, is one minute; a relative time is until now.
func ParseAsked(text string, now time.Time) Asked {
	a := Asked{Words: strings.Fields(text)}
	times := len(a.Words)
	for ; times > 0 && times > len(a.Words)-2; times-- {
		if _, err := event.ParseWhen("", a.Words[times-1], now); err != nil {
			break
		}
	}
	if times == len(a.Words) {
		return a
	}
	words, ends := a.Words[:times], a.Words[times:]
	since, until, _ := event.ParseRange(ends[0], ends[len(ends)-1], now)
	switch {
	case len(ends) == 1 && strings.HasPrefix(ends[0], "-"):
		until = now.UTC().Truncate(time.Second)
	case until.Equal(since):
		until = since.Add(time.Minute)
	case until.Before(since):
		return a
	}
	return Asked{Words: words, Since: since, Until: until}
}

// Named returns the words of the search as one text.
func (a Asked) Named() string { return strings.Join(a.Words, " ") }

// Entity reads the words as an entity: "order 17", "order:17", "order/17", or an id alone. The type
// may be empty.
func (a Asked) Entity() (kind, id string) {
	switch len(a.Words) {
	case 2:
		return strings.ToLower(a.Words[0]), strings.TrimPrefix(a.Words[1], "#")
	case 1:
		for _, mark := range []string{":", "/", "#"} {
			if kind, id, found := strings.Cut(a.Words[0], mark); found && kind != "" && id != "" {
				return kind, id
			}
		}
		return "", a.Words[0]
	}
	return "", ""
}

// Hyphened reads two words as one id: "order 17" as order-17. It is empty for any other number of words.
func (a Asked) Hyphened() string {
	if len(a.Words) != 2 {
		return ""
	}
	return a.Words[0] + "-" + strings.TrimPrefix(a.Words[1], "#")
}

// Row reads the words as CAMPAIGN/SEQ.
func (a Asked) Row() (event.RowKey, bool) {
	text := a.Named()
	slash := strings.LastIndexByte(text, '/')
	if slash < 1 {
		return event.RowKey{}, false
	}
	seq, err := strconv.ParseInt(text[slash+1:], 10, 64)
	return event.RowKey{CampaignID: text[:slash], Seq: seq}, err == nil && seq > 0
}

// Number reads the words as the number of a run or an operation: "7", "run 7", "operation 7".
func (a Asked) Number(kind FindingKind) (int64, bool) {
	text := a.Named()
	if len(a.Words) == 2 && strings.EqualFold(a.Words[0], string(kind)) {
		text = a.Words[1]
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(text, "#"), 10, 64)
	return n, err == nil && n > 0
}

// Within is the filter f in the range of time that was asked for.
func (a Asked) Within(f EventFilter) EventFilter {
	f.Since, f.Until = a.Since, a.Until
	return f
}
