package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"reflect"
	"sync"

	"outboxweb/internal/outbox"
	"outboxweb/internal/publishing"
	"outboxweb/internal/redact"
	"outboxweb/internal/store"
)

// redacted is the store as the handlers know it: its answers, and its refusals,
// come with secrets hidden. It is the field Store of the server, where it takes
// the place of Config.Store, and has no way around it but reveal. So whatever a
// new page reads is redacted: a method of the store that handlers have not used
// before is added to redacted_store.go with shown around what it returns.
//
// Within an answer everything counts as text that might hold a secret, except
// what identifies something and is needed as it is in links and filters; see
// identifiers. JSON documents are read as such. A field that is added to a type
// of package outbox needs nothing done.
type redacted struct {
	of         *store.Store
	publishers *publishing.Progress
	by         *redact.Redactor
}

// identifiers are the fields of type string that are never hidden, by name.
var identifiers = map[string]bool{
	"CampaignID": true, "CampaignIDs": true, "EventType": true, "Fingerprint": true, "FailedFingerprint": true,
	"Topic": true, "Publisher": true, "Projection": true, "Projections": true, "Name": true, "Actor": true, "ID": true,
	"NextCursor": true, "PrevCursor": true, "Versions": true, "Digests": true, "Before": true,
}

// shown is a value as readers may see it. What others may share with it is
// copied before it is changed.
func shown[T any](v redacted, value T) T {
	if hide := hiderOf(reflect.TypeFor[T]()); hide != nil {
		hide(v.by, reflect.ValueOf(&value).Elem())
	}
	return value
}

func shownPages[T any](v redacted, pages iter.Seq2[[]T, error]) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		for items, err := range pages {
			if !yield(shown(v, items), v.wording(err)) {
				return
			}
		}
	}
}

// wording is an error whose sentence for a person has no secret: refusals quote
// what is stored.
func (v redacted) wording(err error) error {
	refusal, ok := errors.AsType[*outbox.Refusal](err)
	if !ok {
		return err
	}
	detail := v.by.Text(refusal.Detail)
	if detail == refusal.Detail {
		return err
	}
	worded := *refusal
	worded.Detail = detail
	return &worded
}

// hider hides secrets in a value that can be set.
type hider func(r *redact.Redactor, value reflect.Value)

var hiders sync.Map // reflect.Type → hider

var (
	stringType      = reflect.TypeFor[string]()
	rawType         = reflect.TypeFor[json.RawMessage]()
	eventType       = reflect.TypeFor[outbox.Event]()
	fieldType       = reflect.TypeFor[outbox.Field]()
	fieldChangeType = reflect.TypeFor[outbox.FieldChange]()
)

// hiderOf makes what hides secrets in values of a type; nil when they hold none.
// No type of ours holds itself.
func hiderOf(t reflect.Type) hider {
	if known, ok := hiders.Load(t); ok {
		return known.(hider)
	}
	h := newHider(t)
	hiders.Store(t, h)
	return h
}

func newHider(t reflect.Type) hider {
	switch t {
	case stringType:
		return hideText
	case rawType:
		return hideDocument
	case eventType:
		return func(r *redact.Redactor, value reflect.Value) {
			hideInEvent(r, value.Addr().Interface().(*outbox.Event))
		}
	case fieldType:
		return func(r *redact.Redactor, value reflect.Value) {
			f := value.Addr().Interface().(*outbox.Field)
			f.Value = hideColumn(r, f.Name, f.Value)
		}
	case fieldChangeType:
		return func(r *redact.Redactor, value reflect.Value) {
			f := value.Addr().Interface().(*outbox.FieldChange)
			f.Live, f.Fold = hideColumn(r, f.Name, f.Live), hideColumn(r, f.Name, f.Fold)
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		return structHider(t)
	case reflect.Slice:
		return sliceHider(t)
	case reflect.Pointer:
		return pointerHider(t)
	case reflect.Map:
		return mapHider(t)
	}
	return nil
}

func structHider(t reflect.Type) hider {
	type part struct {
		field int
		hide  hider
	}
	var parts []part
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || identifiers[f.Name] && identifies(f.Type) {
			continue
		}
		if hide := hiderOf(f.Type); hide != nil {
			parts = append(parts, part{i, hide})
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return func(r *redact.Redactor, value reflect.Value) {
		for _, p := range parts {
			p.hide(r, value.Field(p.field))
		}
	}
}

// identifies reports whether a field of a type may hold identifiers: a text, one
// that may be missing, several, or one for each of several names.
func identifies(t reflect.Type) bool {
	return t == stringType || t.Kind() == reflect.Map && t.Elem() == stringType || (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) && t.Elem() == stringType
}

func sliceHider(t reflect.Type) hider {
	hide := hiderOf(t.Elem())
	if hide == nil {
		return nil
	}
	return func(r *redact.Redactor, value reflect.Value) {
		if value.Len() == 0 {
			return
		}
		own := reflect.MakeSlice(t, value.Len(), value.Len())
		reflect.Copy(own, value)
		for i := range own.Len() {
			hide(r, own.Index(i))
		}
		value.Set(own)
	}
}

func pointerHider(t reflect.Type) hider {
	hide := hiderOf(t.Elem())
	if hide == nil {
		return nil
	}
	return func(r *redact.Redactor, value reflect.Value) {
		if value.IsNil() {
			return
		}
		own := reflect.New(t.Elem())
		own.Elem().Set(value.Elem())
		hide(r, own.Elem())
		value.Set(own)
	}
}

// mapHider hides what stands under the name of a secret, too.
func mapHider(t reflect.Type) hider {
	hide := hiderOf(t.Elem())
	if hide == nil || t.Key() != stringType {
		return nil
	}
	return func(r *redact.Redactor, value reflect.Value) {
		if value.Len() == 0 {
			return
		}
		own := reflect.MakeMapWithSize(t, value.Len())
		for entries := value.MapRange(); entries.Next(); {
			item := reflect.New(t.Elem()).Elem()
			item.Set(entries.Value())
			if t.Elem() == stringType && r.HidesName(entries.Key().String()) {
				item.SetString(redact.Mark)
			} else {
				hide(r, item)
			}
			own.SetMapIndex(entries.Key(), item)
		}
		value.Set(own)
	}
}

func hideText(r *redact.Redactor, value reflect.Value) {
	text := value.String()
	if hidden := r.Text(text); hidden != text {
		value.SetString(hidden)
	}
}

func hideDocument(r *redact.Redactor, value reflect.Value) {
	if hidden, paths := r.JSON(value.Bytes()); paths != nil {
		value.SetBytes(hidden)
	}
}

var hiddenValue = json.RawMessage(`"` + redact.Mark + `"`)

// hideColumn hides the value of a row's column, which stands under its name. A
// side that has none stays without.
func hideColumn(r *redact.Redactor, name string, value json.RawMessage) json.RawMessage {
	if value == nil {
		return nil
	}
	if r.HidesPayloads() || r.HidesName(name) {
		return hiddenValue
	}
	hidden, _ := r.JSON(value)
	return hidden
}

// hideInEvent hides secrets in an event's documents and in the texts of its
// envelope, and says in Redacted where. Where documents are hidden altogether,
// they are nil.
func hideInEvent(r *redact.Redactor, e *outbox.Event) {
	e.Redacted = []string{}
	for _, text := range []struct {
		name  string
		value *string
	}{
		{"event_id", &e.EventID}, {"actor_type", &e.ActorType}, {"actor_id", &e.ActorID}, {"entity_type", &e.EntityType}, {"entity_id", &e.EntityID},
		{"session_id", &e.SessionID}, {"request_id", &e.RequestID}, {"correlation_id", &e.CorrelationID}, {"causation_id", &e.CausationID},
	} {
		if hidden := r.Text(*text.value); hidden != *text.value {
			*text.value = hidden
			e.Redacted = append(e.Redacted, text.name)
		}
	}
	for _, d := range []struct {
		part  outbox.Part
		value *json.RawMessage
	}{{outbox.PartPayload, &e.Payload}, {outbox.PartMetadata, &e.Metadata}, {outbox.PartTags, &e.Tags}} {
		if r.HidesPayloads() {
			*d.value = nil
			e.Redacted = append(e.Redacted, string(d.part))
			continue
		}
		hidden, paths := r.JSON(*d.value)
		*d.value = hidden
		for _, path := range paths {
			e.Redacted = append(e.Redacted, string(d.part)+"."+path)
		}
	}
	if e.Skipped != nil {
		skip := *e.Skipped
		e.Skipped = &skip
		hiderOf(reflect.TypeFor[outbox.Skip]())(r, reflect.ValueOf(e.Skipped).Elem())
	}
}

// Rows lists rows. A text is looked for in errors as they are shown.
func (v redacted) Rows(ctx context.Context, f outbox.RowFilter) (outbox.Page[outbox.Row], error) {
	f.Shown = v.by
	page, err := v.of.Rows(ctx, f)
	return shown(v, page), v.wording(err)
}

// RowsInPages is Rows of all pages.
func (v redacted) RowsInPages(ctx context.Context, f outbox.RowFilter) iter.Seq2[[]outbox.Row, error] {
	f.Shown = v.by
	return shownPages(v, v.of.RowsInPages(ctx, f))
}

// errHidden is a document that this server shows to nobody.
var errHidden = errors.New("hidden")

// Document reads a document of an event. hash is the event's, marked where the
// text is not the one that was hashed. Where payloads are hidden altogether it is
// errHidden.
func (v redacted) Document(ctx context.Context, campaign string, seq int64, part outbox.Part) (text, hash string, err error) {
	if text, hash, err = v.of.Document(ctx, campaign, seq, part); err != nil {
		return "", "", v.wording(err)
	}
	if v.by.HidesPayloads() {
		return "", "", &outbox.Refusal{Err: errHidden, Detail: "this server hides payloads, metadata and tags (--hide-payloads); an admin can reveal those of one event on its page, which is audited"}
	}
	hidden, paths := v.by.JSON(json.RawMessage(text))
	if paths != nil {
		text, hash = string(hidden), hash+"-redacted"
	}
	return text, hash, nil
}

// Reveal is the way around: what is hidden of one event, for the record that it
// leaves.
func (v redacted) Reveal(ctx context.Context, o outbox.Order, campaign string, seq int64) (outbox.Revealed, error) {
	revealed, err := v.of.Reveal(ctx, o, campaign, seq)
	return revealed, v.wording(err)
}
