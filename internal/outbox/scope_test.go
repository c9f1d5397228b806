package outbox_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestScope(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patterns, is []string
		in, out      []string
	}{
		{nil, []string{"*"}, []string{"a", ""}, nil},
		{[]string{"a", "*"}, []string{"*"}, []string{"a", "b"}, nil},
		{[]string{"b", "a", "b"}, []string{"a", "b"}, []string{"a", "b"}, []string{"", "A", "aa"}},
		{[]string{"trial-*", "x"}, []string{"trial-*", "x"}, []string{"trial-", "trial-é", "x"}, []string{"trial", "atrial-1", "x1"}},
	} {
		s, err := outbox.ParseScope(c.patterns)
		must.Hold(t, err == nil && slices.Equal(s.Patterns(), c.is), "%q is %q (%v), want %q", c.patterns, s.Patterns(), err, c.is)
		for _, id := range c.in {
			must.Hold(t, s.Includes(id), "%q does not include %q", c.patterns, id)
		}
		for _, id := range c.out {
			must.Hold(t, !s.Includes(id), "%q includes %q", c.patterns, id)
		}
	}
}

func TestParseScope_refusesWhatMatchesNothing(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "a*b", "**", "a\x00", "\xff", strings.Repeat("x", outbox.MaxIDLength+1)} {
		s, err := outbox.ParseScope([]string{"fine", p})
		must.Hold(t, errors.Is(err, outbox.ErrInvalid) && s.Every(), "%q is taken as %s (%v)", p, s, err)
	}
	_, err := outbox.ParseScope(make([]string, outbox.MaxPatterns+1))
	must.Hold(t, errors.Is(err, outbox.ErrInvalid), "too many patterns: %v", err)
}

func TestTogether(t *testing.T) {
	t.Parallel()
	scope := func(patterns ...string) outbox.Scope {
		return must.Get(outbox.ParseScope(patterns)).Or(t)
	}
	for _, c := range []struct {
		of   []outbox.Scope
		want string
	}{
		{nil, "*"},
		{[]outbox.Scope{scope("b", "a*"), scope("a*", "c")}, "a*, b, c"},
		{[]outbox.Scope{scope("b"), {}}, "*"},
	} {
		must.Equal(t, outbox.Together(c.of...).String(), c.want, "together they")
	}
}
