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
		if err != nil || !slices.Equal(s.Patterns(), c.is) {
			t.Errorf("%q is %q (%v), want %q", c.patterns, s.Patterns(), err, c.is)
		}
		for _, id := range c.in {
			if !s.Includes(id) {
				t.Errorf("%q does not include %q", c.patterns, id)
			}
		}
		for _, id := range c.out {
			if s.Includes(id) {
				t.Errorf("%q includes %q", c.patterns, id)
			}
		}
	}
}

func TestParseScope_refusesWhatMatchesNothing(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "a*b", "**", "a\x00", "\xff", strings.Repeat("x", outbox.MaxIDLength+1)} {
		if s, err := outbox.ParseScope([]string{"fine", p}); !errors.Is(err, outbox.ErrInvalid) || !s.Every() {
			t.Errorf("%q is taken as %s (%v)", p, s, err)
		}
	}
	if _, err := outbox.ParseScope(make([]string, outbox.MaxPatterns+1)); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("too many patterns: %v", err)
	}
}

func TestTogether(t *testing.T) {
	t.Parallel()
	scope := func(patterns ...string) outbox.Scope {
		s := must.Get(outbox.ParseScope(patterns)).Or(t)
		return s
	}
	for _, c := range []struct {
		of   []outbox.Scope
		want string
	}{
		{nil, "*"},
		{[]outbox.Scope{scope("b", "a*"), scope("a*", "c")}, "a*, b, c"},
		{[]outbox.Scope{scope("b"), {}}, "*"},
	} {
		if got := outbox.Together(c.of...).String(); got != c.want {
			t.Errorf("together they are %s, want %s", got, c.want)
		}
	}
}
