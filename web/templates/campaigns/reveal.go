package campaigns

import (
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// placesShown is how many paths of hidden values are listed.
const placesShown = 10

// hidesAll reports whether all documents of an event are hidden.
func hidesAll(e event.Event) bool { return slices.Contains(e.Redacted, string(event.PartPayload)) }

func redactedPlaces(e event.Event) string {
	if len(e.Redacted) <= placesShown {
		return strings.Join(e.Redacted, ", ")
	}
	return strings.Join(e.Redacted[:placesShown], ", ") + ", …"
}

// revealedParts are the documents of an event, which are shown whole.
func revealedParts(e event.Event) []Document {
	var all []Document
	for _, part := range []event.Part{event.PartPayload, event.PartTags, event.PartMetadata} {
		if raw := e.Document(part); part == event.PartPayload || !ui.EmptyJSON(raw) {
			text := ui.PrettyJSON(raw)
			all = append(all, Document{Part: part, Text: text, Size: int64(len(text))})
		}
	}
	return all
}
