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
	case value.Kind() == slog.KindAny:
		return slog.Attr{Key: name, Value: h.any(value)}
	}
	return slog.Attr{Key: name, Value: value}
}

// any converts a value to the text that a handler would write, if it has one.
func (h logHandler) any(value slog.Value) slog.Value {
	switch v := value.Any().(type) {
	case nil:
		return value
	case error:
		return slog.StringValue(h.r.Text(textOf(v.Error, v)))
	case fmt.Stringer:
		return slog.StringValue(h.r.Text(textOf(v.String, v)))
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return slog.StringValue(h.r.Text(err.Error()))
		}
		return slog.StringValue(h.r.Text(string(text)))
	case json.RawMessage:
		return slog.StringValue(h.r.Text(string(v)))
	case []byte:
		return slog.StringValue(h.r.Text(string(v)))
	default:
		return slog.StringValue(h.r.Text(fmt.Sprintf("%+v", v)))
	}
}

// textOf calls the method that formats a value. A nil pointer is formatted by fmt, since the
// method may panic.
func textOf(text func() string, v any) string {
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
		return fmt.Sprint(v)
	}
	return text()
}
