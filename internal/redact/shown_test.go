package redact

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

const secretText = "password=Leak7"

type base struct{ Text string }

type holder struct {
	base
	ID      string `redact:"-"`
	Typed   base   `redact:"-"`
	Word    event.Status
	Missing *string
	Pointer *base
	List    []base
	ByName  map[string]string
	ByKind  map[event.Status][]string
	Any     any
	Raw     json.RawMessage
}

func full() holder {
	return holder{base{secretText}, "password=id", base{"password=typed"}, "password=word", nil, &base{secretText}, []base{{secretText}},
		map[string]string{"apiKey": "Leak7", "note": secretText}, map[event.Status][]string{event.Dead: {secretText}},
		map[string]any{"list": []string{secretText}}, json.RawMessage(`{"token":"Leak7"}`)}
}

func TestShown_hidesEveryTextThatIsNotTagged(t *testing.T) {
	t.Parallel()
	given := full()
	shown := Shown(Builtin(), given)
	text := dump(shown)
	must.Hold(t, !strings.Contains(text, "Leak7"), "a secret is shown: %s", text)
	must.Hold(t, shown.ID == "password=id" && shown.Typed.Text == "password=typed" && shown.Word == "password=word" && shown.Missing == nil, "what identifies is not whole: %+v", shown)
	must.Equal(t, given, full(), "what others share was changed", dump(given))
}

func dump(h holder) string {
	return h.Text + fmt.Sprint(h.Pointer.Text, h.List, h.ByName, h.ByKind, h.Any, string(h.Raw))
}

// The rule for events names their fields, to list the hidden ones.
func TestShown_hidesEveryTextOfAnEvent(t *testing.T) {
	t.Parallel()
	var e event.Event
	v := reflect.ValueOf(&e).Elem()
	texts := 0
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Tag.Get("redact") == asIs:
		case f.Type == stringType:
			v.Field(i).SetString(secretText)
			texts++
		case f.Type == rawType:
			v.Field(i).SetBytes([]byte(`{"password":"Leak7"}`))
			texts++
		}
	}
	e.Skipped = &event.Skip{Reason: secretText}
	shown := Shown(Builtin(), e)
	text, err := json.Marshal(shown)
	must.Hold(t, err == nil && !strings.Contains(string(text), "Leak7"), "a secret is shown: %s (%v)", text, err)
	must.Equal(t, len(shown.Redacted), texts, "the places that are named")
	must.Equal(t, e.Skipped.Reason, secretText, "the skip that others share was changed")
}
