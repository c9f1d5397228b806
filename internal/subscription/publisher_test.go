package subscription_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

func TestMatchWildcard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"scene.added", "scene.added", true}, {"scene.added", "scene.added.x", false},
		{"*", "", true}, {"*", "anything", true}, {"scene.*", "scene.", true}, {"scene.*", "scenes.x", false},
		{"*.added", "scene.added", true}, {"*.added", "scene.added.more", false},
		{"a*b*c", "axxbyyc", true}, {"a*b*c", "abc", true}, {"a*b*c", "acb", false}, {"a*a", "a", false}, {"ab*ba", "aba", false},
	} {
		must.Equal(t, subscription.MatchWildcard(c.pattern, c.text), c.want, "MatchWildcard", c.pattern, c.text, ")")
	}
}

func TestMatch_allConditionsMustHold(t *testing.T) {
	t.Parallel()
	e := &event.Event{CampaignID: "c-1", EventType: "scene.added", ActorID: "ana", Tags: json.RawMessage(`{"wallet_id":"w-1","empty":"","entity_id":"forged"}`)}
	for name, c := range map[string]struct {
		match subscription.Match
		want  bool
	}{
		"type":                          {subscription.Match{EventTypes: []string{"x", "scene.*"}}, true},
		"another type":                  {subscription.Match{EventTypes: []string{"session.*"}}, false},
		"campaign":                      {subscription.Match{Campaigns: []string{"c-1"}}, true},
		"another campaign":              {subscription.Match{Campaigns: []string{"c-2"}, EventTypes: []string{"*"}}, false},
		"required":                      {subscription.Match{RequiredTags: []string{"wallet_id", "empty"}}, true},
		"one required is missing":       {subscription.Match{RequiredTags: []string{"wallet_id", "region"}}, false},
		"any":                           {subscription.Match{AnyOfTags: []string{"region", "wallet_id"}}, true},
		"none of any":                   {subscription.Match{AnyOfTags: []string{"region"}}, false},
		"exact":                         {subscription.Match{ExactTags: map[string]string{"wallet_id": "w-1"}}, true},
		"another value":                 {subscription.Match{ExactTags: map[string]string{"wallet_id": "w-2"}}, false},
		"a field of the envelope":       {subscription.Match{ExactTags: map[string]string{"actor_id": "ana"}, RequiredTags: []string{"campaign_id"}}, true},
		"an empty field is not there":   {subscription.Match{RequiredTags: []string{"session_id"}}, false},
		"a tag cannot pose as envelope": {subscription.Match{RequiredTags: []string{"entity_id"}}, false},
		"one of two does not hold":      {subscription.Match{RequiredTags: []string{"wallet_id"}, EventTypes: []string{"other"}}, false},
	} {
		must.Equal(t, c.match.Matches(e), c.want, name)
	}
}

func TestPollPace_growsAfterThreeEmptyPolls(t *testing.T) {
	t.Parallel()
	var p subscription.PollPace
	var waits []time.Duration
	for range 11 {
		waits = append(waits, p.Empty(time.Second, subscription.IdleBackoff{}))
	}
	s := time.Second
	want := []time.Duration{s, s, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}
	must.Equal(t, waits, want, "waits")
	p.Reset()
	must.Equal(t, p.Empty(2*time.Minute, subscription.IdleBackoff{}), 2*time.Minute, "an interval above the bound waits")
}

func TestPollPace_growsAsConfigured(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		backoff subscription.IdleBackoff
		want    []time.Duration
	}{
		{subscription.IdleBackoff{Off: true, After: 1, Factor: 2, Longest: time.Minute}, []time.Duration{4, 4, 4, 4}},
		{subscription.IdleBackoff{After: 1, Factor: 1.5, Longest: 10 * time.Second}, []time.Duration{4, 6, 9, 10}},
		{subscription.IdleBackoff{After: 2, Factor: 10, Longest: time.Second}, []time.Duration{4, 4, 4, 4}},
	} {
		var p subscription.PollPace
		for i, want := range c.want {
			must.Equal(t, p.Empty(4*time.Second, c.backoff), want*time.Second, c.backoff, "wait", i+1, "is")
		}
		for range 5000 {
			p.Empty(4*time.Second, c.backoff)
		}
		got := p.Empty(4*time.Second, c.backoff)
		must.Hold(t, got >= 4*time.Second && got <= 10*time.Second, "%+v: waits %v in the end", c.backoff, got)
	}
}
