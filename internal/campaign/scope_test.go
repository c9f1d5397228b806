package campaign_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
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
		s, err := campaign.ParseScope(c.patterns)
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
	for _, p := range []string{"", "a*b", "**", "a\x00", "\xff", strings.Repeat("x", event.MaxIDLength+1)} {
		s, err := campaign.ParseScope([]string{"fine", p})
		must.Hold(t, errors.Is(err, event.ErrInvalid) && s.Every(), "%q is taken as %s (%v)", p, s, err)
	}
	_, err := campaign.ParseScope(make([]string, campaign.MaxPatterns+1))
	must.Hold(t, errors.Is(err, event.ErrInvalid), "too many patterns: %v", err)
}

func TestTogether(t *testing.T) {
	t.Parallel()
	scope := func(patterns ...string) campaign.Scope {
		return must.Get(campaign.ParseScope(patterns)).Or(t)
	}
	for _, c := range []struct {
		of   []campaign.Scope
		want string
	}{
		{nil, "*"},
		{[]campaign.Scope{scope("b", "a*"), scope("a*", "c")}, "a*, b, c"},
		{[]campaign.Scope{scope("b"), {}}, "*"},
	} {
		must.Equal(t, campaign.Together(c.of...).String(), c.want, "together they")
	}
}
