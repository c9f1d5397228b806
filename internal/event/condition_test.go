package event

import (
	"errors"
	"github.com/outboxweb/outboxweb/internal/must"
	"strings"
	"testing"
)

// A value that no event can have would never match.
func TestParseCondition_refusesWhatDecodingWouldReplace(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{\"items\":[{\"tags\":{\"name\":\"Z\xfcrich\"}}]}", `{"items":[{"tags":{"name":"\ud83d"}}]}`, `{"items":[{"tags":{"\ude00\ud83d":"x"}}]}`,
	} {
		_, err := ParseCondition([]byte(text))
		var refusal *Refusal
		must.Hold(t, errors.As(err, &refusal) && refusal.Field == "condition" && errors.Is(err, ErrInvalid), "%q: %v", text, err)
	}
	c, err := ParseCondition([]byte(`{"items":[{"tags":{"name":"\ud83d\ude00 \ufffd Zürich"}}]}`))
	must.Hold(t, err == nil && c.Items[0].Tags["name"] == "😀 \ufffd Zürich", "%+v, %v", c, err)
}

func TestParseCondition_takesEachKeyAsItIsWrittenAndOnce(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"Items":[{"event_types":["a"]}]}`:                                  `unknown field "Items"`,
		`{"items":[{"event_types":["a"]}],"items":[{"event_types":["b"]}]}`:  "items is given twice",
		`{"items":[{"event_types":["a"],"event_types":["b"]}]}`:              "event_types is given twice",
		`{"items":[{"event_types":["a"]},{"tags":{"seat":"7","seat":"8"}}]}`: "seat is given twice",
	} {
		_, err := ParseCondition([]byte(text))
		must.Hold(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want %q", text, err, want)
	}
	must.Get(ParseCondition([]byte(` { "after_position" : 3, "items" : [ {"tags":{"Seat":"7","seat":"8"} , "event_types":null} ] } `))).Or(t)
}
