package outbox

import (
	"errors"
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
		if !errors.As(err, &refusal) || refusal.Field != "condition" || !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
	c, err := ParseCondition([]byte(`{"items":[{"tags":{"name":"\ud83d\ude00 \ufffd Zürich"}}]}`))
	if err != nil || c.Items[0].Tags["name"] != "😀 \ufffd Zürich" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestParseCondition_takesEachKeyAsItIsWrittenAndOnce(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"Items":[{"event_types":["a"]}]}`:                                  `unknown field "Items"`,
		`{"items":[{"event_types":["a"]}],"items":[{"event_types":["b"]}]}`:  "items is given twice",
		`{"items":[{"event_types":["a"],"event_types":["b"]}]}`:              "event_types is given twice",
		`{"items":[{"event_types":["a"]},{"tags":{"seat":"7","seat":"8"}}]}`: "seat is given twice",
	} {
		if _, err := ParseCondition([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := ParseCondition([]byte(` { "after_position" : 3, "items" : [ {"tags":{"Seat":"7","seat":"8"} , "event_types":null} ] } `)); err != nil {
		t.Error(err)
	}
}
