package sample

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

var end = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func TestEvents_isDenseOrderedAcceptableAndPoisonedAsAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{Campaigns: 40, Events: 4000, Poison: 3, Seed: 1, End: end},
		{Campaigns: 1, Events: 1, Seed: 2, End: end},
		{Campaigns: 5, Events: 15, Poison: 5, Seed: 3, End: end},
		{Campaigns: 1, Events: 20000, Poison: 1, Seed: 4, End: end},
		{Campaigns: 100, Events: 104, Poison: 2, Seed: 5, End: end},
	} {
		err := c.Validate()
		must.Need(t, err == nil, "%+v: %v", c, err)
		seqs := map[string]int64{}
		ids, seats, poisonedAt := map[string]bool{}, map[string]bool{}, map[string]int64{}
		var last time.Time
		n := 0
		for e := range Events(c) {
			n++
			must.Need(t, e.Seq == seqs[e.CampaignID]+1, "%+v: campaign %s: seq %d after %d", c, e.CampaignID, e.Seq, seqs[e.CampaignID])
			seqs[e.CampaignID] = e.Seq
			must.Need(t, !ids[e.EventID], "%+v: event_id %s twice", c, e.EventID)
			ids[e.EventID] = true
			must.Need(t, !e.OccurredAt.Before(last) && !e.OccurredAt.After(end), "%+v: event %d occurred at %s, the one before at %s", c, n, e.OccurredAt, last)
			last = e.OccurredAt
			if e.EventType == "participant.joined" { // a second seat of a user is the poison
				var payload struct {
					UserID string `json:"user_id"`
				}
				must.OK(t, json.Unmarshal(e.Payload, &payload))
				seat := e.CampaignID + " " + payload.UserID
				if seats[seat] {
					poisonedAt[e.CampaignID] = e.Seq
				}
				seats[seat] = true
			}
			err := e.Normalize(event.DefaultMaxPayload)
			must.Need(t, err == nil, "%+v: event %d (%s): %v", c, n, e.EventType, err)
		}
		must.Hold(t, n == c.Events && len(seqs) == c.Campaigns && len(poisonedAt) == c.Poison, "%+v gave %d events in %d campaigns, of which %d are poisoned", c, n, len(seqs), len(poisonedAt))
		for campaign, seq := range poisonedAt {
			must.Hold(t, c.Events < 4000 || seqs[campaign]-seq >= 5, "%+v: few of %d events wait behind the poison of %s at %d", c, seqs[campaign], campaign, seq)
		}
	}
}

func TestEvents_repeatsForTheSameSeedOnly(t *testing.T) {
	t.Parallel()
	c := Config{Campaigns: 7, Events: 300, Poison: 1, Seed: 9, End: end}
	first, second := slices.Collect(Events(c)), slices.Collect(Events(c))
	must.Equal(t, second, first, "the same seed gave two journals")
	c.Seed++
	third := slices.Collect(Events(c))
	must.Hold(t, third[0].CampaignID != first[0].CampaignID, "another seed gave the same campaigns")
}

func TestValidate_namesTheFlag(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]Config{
		"campaigns": {Campaigns: 0, Events: 5},
		"events":    {Campaigns: 5, Events: 4},
		"poison":    {Campaigns: 5, Events: 50, Poison: 6},
	} {
		refusal, ok := c.Validate().(*event.Refusal)
		must.Hold(t, ok && refusal.Field == field, "%+v: %v, want a refusal about %s", c, refusal, field)
	}
}
