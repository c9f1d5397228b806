package campaigns

import (
	"slices"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/projection"
)

func explainedName(f projection.ExplainedFailure) string {
	if f.Projection == "" {
		return "Why it fails"
	}
	return "Why it fails in projection " + f.Projection
}

// blamed reports whether a line of the statement binds a value that was refused.
func blamed(f projection.ExplainedFailure, l projection.SourceLine) bool {
	return l.Failed && f.VersionChanged() == "" && slices.ContainsFunc(f.Statement.Values, func(v projection.BoundValue) bool {
		return (v.Refused || v.Missing) && slices.ContainsFunc(strings.FieldsFunc(l.Text, notOfBinding), func(word string) bool { return strings.TrimSuffix(word, "!") == v.Name })
	})
}

// notOfBinding reports whether a character cannot be part of a binding.
func notOfBinding(r rune) bool { return strings.ContainsRune(" \t(),;", r) }

// sourceLook is the class of a line of a file, and its margin: whether it failed, and its number.
func sourceLook(f projection.ExplainedFailure, l projection.SourceLine) (class, margin string) {
	number := strconv.Itoa(l.Number)
	switch {
	case blamed(f, l):
		return "failed blamed", "✕ " + number
	case l.Failed:
		return "failed", "▸ " + number
	}
	return "", "  " + number
}
