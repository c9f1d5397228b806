package outbox

import (
	"errors"
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
