package redact

import (
	"encoding/json"
	"reflect"
	"sync"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
)

// asIs is the tag value of a field that is never hidden.
const asIs = "-"

// Shown is a value as readers may see it: every text in it is searched for secrets, and every
// json.RawMessage treated as a document. Memory that may be shared is copied before it is
// changed.
//
// Nothing is hidden in a field with the tag `redact:"-"`. It is for fields that identify
// something and are needed unredacted in links and filters, for fields with the reader's own
// input, and for fields redacted before. There is no other way to exempt a field. Named string
// types, such as event.Status, are constants of this program and not searched. Unexported
// fields are ignored.
func Shown[T any](r *Redactor, value T) T {
	if hide := hiderOf(reflect.TypeFor[T]()); hide != nil {
		hide(r, reflect.ValueOf(&value).Elem())
	}
	return value
}

// hider hides secrets in a value that can be set.
type hider func(r *Redactor, value reflect.Value)

var hiders sync.Map // reflect.Type → hider

var (
	stringType = reflect.TypeFor[string]()
	rawType    = reflect.TypeFor[json.RawMessage]()
)

// hiderOf creates the hider of a type; nil when it has no texts. No type of this program
// contains itself, except in fields with the tag.
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
	}
	if h := ruleOf(t); h != nil {
		return h
	}
	switch t.Kind() {
	case reflect.Struct:
		return structHider(t)
	case reflect.Interface:
		return hideWhatItHolds
	}
	of, holds := containerHiders[t.Kind()]
	if !holds {
		return nil
	}
	hide := hiderOf(t.Elem())
	if hide == nil {
		return nil
	}
	return func(r *Redactor, value reflect.Value) {
		if value.IsNil() {
			return
		}
		of(r, value, hide)
	}
}

// containerHiders apply the hider of the element type to the elements of a non-nil container.
// Shared memory is copied.
var containerHiders = map[reflect.Kind]func(r *Redactor, value reflect.Value, hide hider){
	reflect.Slice: hideInSlice, reflect.Pointer: hideInPointer, reflect.Map: hideInMap,
}

func structHider(t reflect.Type) hider {
	type part struct {
		field int
		hide  hider
	}
	var parts []part
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("redact") == asIs || !f.IsExported() && !promotes(f) {
			continue
		}
		if hide := hiderOf(f.Type); hide != nil {
			parts = append(parts, part{i, hide})
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return func(r *Redactor, value reflect.Value) {
		for _, p := range parts {
			p.hide(r, value.Field(p.field))
		}
	}
}

// promotes reports whether a field is an embedded struct, whose exported fields are in its JSON
// even if its type is not exported.
func promotes(f reflect.StructField) bool { return f.Anonymous && f.Type.Kind() == reflect.Struct }

func hideInSlice(r *Redactor, value reflect.Value, hide hider) {
	own := reflect.MakeSlice(value.Type(), value.Len(), value.Len())
	reflect.Copy(own, value)
	for i := range own.Len() {
		hide(r, own.Index(i))
	}
	value.Set(own)
}

func hideInPointer(r *Redactor, value reflect.Value, hide hider) {
	own := copied(value.Elem())
	hide(r, own)
	value.Set(own.Addr())
}

// copied is a value that can be set.
func copied(value reflect.Value) reflect.Value {
	own := reflect.New(value.Type()).Elem()
	own.Set(value)
	return own
}

// hideInMap also hides the values of keys that are names of secrets. Keys are kept.
func hideInMap(r *Redactor, value reflect.Value, hide hider) {
	t := value.Type()
	own := reflect.MakeMapWithSize(t, value.Len())
	for entries := value.MapRange(); entries.Next(); {
		item := copied(entries.Value())
		if t.Elem() == stringType && r.HidesName(entries.Key().String()) {
			item.SetString(Mark)
		} else {
			hide(r, item)
		}
		own.SetMapIndex(entries.Key(), item)
	}
	value.Set(own)
}

// hideWhatItHolds hides secrets in the value of an interface.
func hideWhatItHolds(r *Redactor, value reflect.Value) {
	if value.IsNil() {
		return
	}
	hide := hiderOf(value.Elem().Type())
	if hide == nil {
		return
	}
	own := copied(value.Elem())
	hide(r, own)
	value.Set(own)
}

func hideText(r *Redactor, value reflect.Value) {
	text := value.String()
	if hidden := r.Text(text); hidden != text {
		value.SetString(hidden)
	}
}

func hideDocument(r *Redactor, value reflect.Value) {
	if hidden, paths := r.JSON(value.Bytes()); paths != nil {
		value.SetBytes(hidden)
	}
}

// Of is the redactor as those use it that take values of an event apart.
func Of(r *Redactor) projection.Hider {
	return projection.Hider{Event: func(e event.Event) event.Event { return Shown(r, e) }, Name: r.HidesName}
}
