package campaign

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Scope is the set of campaigns that a worker serves: those whose id equals one of its patterns, or
// begins with a pattern that ends in *. The zero value is every campaign. A Scope is immutable.
type Scope struct{ patterns []string }

// MaxPatterns is the maximum number of patterns in a Scope.
const MaxPatterns = 100

// ParseScope parses patterns; none means every campaign, as does *. Errors are ErrInvalid refusals
// of the field campaigns.
func ParseScope(patterns []string) (Scope, error) {
	if len(patterns) > MaxPatterns {
		return Scope{}, event.Invalid("campaigns", "there are %d patterns; the limit is %d", len(patterns), MaxPatterns)
	}
	for _, p := range patterns {
		begin := strings.TrimSuffix(p, "*")
		switch err := event.CheckStored("a campaign's id", begin); {
		case p == "":
			return Scope{}, event.Invalid("campaigns", "a pattern is empty; give a campaign id, or a prefix followed by *")
		case strings.Contains(begin, "*"):
			return Scope{}, event.Invalid("campaigns", "%q has a * before its end; a * can only be the last character", p)
		case err != nil:
			return Scope{}, event.Invalid("campaigns", "%q can match no campaign: %v", p, err)
		}
	}
	return scopeOf(slices.Clone(patterns)), nil
}

func scopeOf(patterns []string) Scope {
	if len(patterns) == 0 || slices.Contains(patterns, "*") {
		return Scope{}
	}
	slices.Sort(patterns)
	return Scope{slices.Compact(patterns)}
}

// Every reports whether the scope is every campaign.
func (s Scope) Every() bool { return len(s.patterns) == 0 }

// Includes reports whether a campaign is in the scope.
func (s Scope) Includes(id string) bool {
	return s.Every() || slices.ContainsFunc(s.patterns, func(p string) bool {
		begin, open := strings.CutSuffix(p, "*")
		return id == begin || open && strings.HasPrefix(id, begin)
	})
}

// Equal reports whether the patterns are the same.
func (s Scope) Equal(o Scope) bool { return slices.Equal(s.patterns, o.patterns) }

// Patterns returns the patterns as ParseScope takes them: * alone for every campaign.
func (s Scope) Patterns() []string {
	if s.Every() {
		return []string{"*"}
	}
	return slices.Clone(s.patterns)
}

// Together returns the union of scopes, and every campaign for none.
func Together(scopes ...Scope) Scope {
	var patterns []string
	for _, s := range scopes {
		patterns = append(patterns, s.Patterns()...)
	}
	return scopeOf(patterns)
}

// String lists the patterns for people.
func (s Scope) String() string { return strings.Join(s.Patterns(), ", ") }

// MarshalJSON writes the patterns as an array.
func (s Scope) MarshalJSON() ([]byte, error) { return json.Marshal(s.Patterns()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Scope) UnmarshalJSON(text []byte) error {
	var patterns []string
	err := json.Unmarshal(text, &patterns)
	*s = scopeOf(patterns)
	return err
}
