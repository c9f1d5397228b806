package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

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
// what is tagged as redact.Shown says.
type redacted struct {
	of         *store.Store
	publishers *publishing.Progress
	by         *redact.Redactor
}

// shown is a value as readers may see it.
func shown[T any](v redacted, value T) T { return redact.Shown(v.by, value) }

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
