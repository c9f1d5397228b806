package redact

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
)

// Log is a slog.Handler that hides secrets in messages and values, including those in groups,
// and passes the record to another handler. Errors and other values with a text form become
// that text. The value of an attribute with the name of a secret is hidden completely.
func (r *Redactor) Log(to slog.Handler) slog.Handler { return logHandler{r: r, to: to} }

type logHandler struct {
	r  *Redactor
	to slog.Handler
}

func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

func (h logHandler) Handle(ctx context.Context, record slog.Record) error {
	shown := slog.NewRecord(record.Time, record.Level, h.r.Text(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		shown.AddAttrs(h.attr(a))
		return true
	})
	return h.to.Handle(ctx, shown)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{r: h.r, to: h.to.WithAttrs(h.attrs(attrs))}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{r: h.r, to: h.to.WithGroup(name)}
}

func (h logHandler) attrs(attrs []slog.Attr) []slog.Attr {
	shown := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		shown[i] = h.attr(a)
	}
	return shown
}

func (h logHandler) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	name := h.r.Text(a.Key)
	switch {
	case value.Kind() == slog.KindGroup:
		return slog.Attr{Key: name, Value: slog.GroupValue(h.attrs(value.Group())...)}
	case h.r.HidesName(a.Key):
		return slog.String(name, Mark)
	case value.Kind() == slog.KindString:
		return slog.String(name, h.r.Text(value.String()))
	case value.Kind() == slog.KindAny && value.Any() != nil:
		return slog.String(name, h.r.Text(textOf(value.Any())))
	}
	return slog.Attr{Key: name, Value: value}
}

// textOf is the text that a handler would write for a value.
func textOf(value any) string {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Sprint(value) // a method of it may panic
	}
	switch v := value.(type) {
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(text)
	case json.RawMessage:
		return string(v)
	case []byte:
		return string(v)
	}
	return fmt.Sprintf("%+v", value)
}
