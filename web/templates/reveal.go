package templates

import (
	"context"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

type hidesPayloads struct{}

// WithHiddenPayloads is the context of pages of a server that hides payloads and row values, whatever
// they are.
func WithHiddenPayloads(ctx context.Context) context.Context {
	return context.WithValue(ctx, hidesPayloads{}, true)
}

// placesShown is how many paths of hidden values are listed.
const placesShown = 10

// hidesAll reports whether all documents of an event are hidden.
func hidesAll(e outbox.Event) bool { return slices.Contains(e.Redacted, string(outbox.PartPayload)) }

func redactedPlaces(e outbox.Event) string {
	if len(e.Redacted) <= placesShown {
		return strings.Join(e.Redacted, ", ")
	}
	return strings.Join(e.Redacted[:placesShown], ", ") + ", …"
}

func isHidden(value string) bool { return value == string(outbox.HiddenJSON) }

// revealedParts are the documents of an event, which are shown whole.
func revealedParts(e outbox.Event) []Document {
	var all []Document
	for _, part := range []outbox.Part{outbox.PartPayload, outbox.PartTags, outbox.PartMetadata} {
		if raw := e.Document(part); part == outbox.PartPayload || !emptyJSON(raw) {
			text := prettyJSON(raw)
			all = append(all, Document{Part: part, Text: text, Size: int64(len(text))})
		}
	}
	return all
}
