package sample

import (
	"math/rand/v2"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// system is the made-up game system whose events the sample carries.
const system = "emberfall"

// campaign plays one campaign: event returns what happens next, until done.
type campaign struct {
	index int
	rng   *rand.Rand
	at    time.Time // of the next event
	step  time.Duration
	size  int
	seq   int64

	poisonAt int64 // seq of the second seat for one user; 0 for none
	id       string
	queue    []func() event.Event // what is bound to happen next, in order
	players  []player
	session  string
	scene    string
	rounds   int // rounds of play until the session ends
	fear     int
	foes     []foe
}

type player struct{ participant, user, character string }

type foe struct {
	id, name string
	hp       int
}

func newCampaign(c Config, index, size int, poisoned bool) *campaign {
	rng := rand.New(rand.NewPCG(c.Seed, uint64(index)+1))
	length := window/4 + time.Duration(rng.Int64N(int64(window/2)))
	start := c.End.Add(-length - time.Duration(rng.Int64N(int64(window-length))))
	p := &campaign{index: index, rng: rng, size: size, id: id(rng, 26), step: length / time.Duration(size)}
	p.at = start.UTC().Truncate(time.Millisecond)
	if poisoned {
		p.poisonAt = max(smallestPoisoned, int64(size/3+rng.IntN(size/4+1)))
	}
	p.found()
	return p
}

// event is what happens next.
func (c *campaign) event() event.Event {
	c.seq++
	var e event.Event
	if c.seq == c.poisonAt {
		e = c.secondSeat()
	} else {
		if len(c.queue) == 0 {
			c.play()
		}
		e = c.queue[0]()
		c.queue = c.queue[1:]
	}
	e.CampaignID, e.Seq, e.EventID, e.OccurredAt = c.id, c.seq, id(c.rng, 26), c.at
	if e.RequestID == "" {
		e.RequestID = id(c.rng, 26)
	}
	pause := c.step/4 + time.Duration(c.rng.Int64N(int64(c.step)*3/4+1)) // at most a step: nothing happens after Config.End
	c.at = c.at.Add(pause).Truncate(time.Millisecond)
	return e
}

func (c *campaign) then(steps ...func() event.Event) { c.queue = append(c.queue, steps...) }

func pick[T any](c *campaign, from []T) T { return from[c.rng.IntN(len(from))] }

// byPlayer is an event a participant caused, about some entity.
func (c *campaign) byPlayer(p player, eventType, entityType, entity string, payload map[string]any) event.Event {
	return event.Event{EventType: eventType, ActorType: "participant", ActorID: p.participant,
		EntityType: entityType, EntityID: entity, SessionID: c.session, Payload: object(payload)}
}

// bySystem is an event the game rules caused, about some entity.
func (c *campaign) bySystem(eventType, entityType, entity string, payload map[string]any) event.Event {
	return event.Event{EventType: eventType, ActorType: "system",
		EntityType: entityType, EntityID: entity, SessionID: c.session, Payload: object(payload)}
}

// byRules is an event of the game system itself.
func (c *campaign) byRules(name, entityType, entity string, payload map[string]any) event.Event {
	e := c.bySystem("sys."+system+"."+name, entityType, entity, payload)
	meta := map[string]any{"system_id": system, "system_version": "1.0.0"}
	if c.scene != "" {
		meta["scene_id"] = c.scene
	}
	e.Metadata = object(meta)
	return e
}

func (c *campaign) inScene(e event.Event) event.Event {
	e.Metadata = object(map[string]any{"scene_id": c.scene})
	return e
}

// found queues the beginning of a campaign: its creation, the game master's
// seat and the players with their characters.
func (c *campaign) found() {
	name := pick(c, places) + " " + pick(c, troubles)
	c.then(func() event.Event {
		return c.bySystem("campaign.created", "campaign", c.id, map[string]any{
			"name": name, "game_system": system, "gm_mode": "human", "locale": pick(c, locales),
			"intent": pick(c, []string{"STANDARD", "STANDARD", "SANDBOX"}), "access_policy": pick(c, []string{"PRIVATE", "PUBLIC"}),
			"theme_prompt": pick(c, themes), "cover_asset_id": "cover_" + pick(c, covers), "cover_set_id": "sample_covers_v1",
		})
	})
	gm := player{participant: id(c.rng, 26), user: id(c.rng, 26)}
	c.players = append(c.players, gm)
	c.join(gm, "gm", "owner")
	for range 2 + c.rng.IntN(4) {
		p := player{participant: id(c.rng, 26), user: id(c.rng, 26), character: id(c.rng, 26)}
		c.players = append(c.players, p)
		c.join(p, "player", "member")
		c.create(p)
	}
	c.then(func() event.Event {
		return c.byPlayer(gm, "campaign.updated", "campaign", c.id, map[string]any{"fields": map[string]any{"status": "active"}})
	})
}

func (c *campaign) join(p player, role, access string) {
	name := pick(c, people)
	c.then(func() event.Event {
		return c.bySystem("participant.joined", "participant", p.participant, map[string]any{
			"participant_id": p.participant, "user_id": p.user, "name": name, "role": role, "controller": "human",
			"campaign_access": access, "pronouns": pick(c, pronouns), "avatar_asset_id": "avatar_" + pick(c, covers), "avatar_set_id": "sample_avatars_v1",
		})
	})
}

func (c *campaign) create(p player) {
	name := pick(c, heroes)
	c.then(func() event.Event {
		return c.byPlayer(p, "character.created", "character", p.character, map[string]any{
			"character_id": p.character, "name": name, "kind": "pc", "owner_participant_id": p.participant,
			"avatar_asset_id": "avatar_" + pick(c, covers), "avatar_set_id": "sample_avatars_v1",
		})
	}, func() event.Event {
		return c.byRules("character_profile_replaced", "character", p.character, map[string]any{
			"character_id": p.character, "profile": map[string]any{
				"calling": pick(c, callings), "level": 1 + c.rng.IntN(4), "hp_max": 6 + c.rng.IntN(5), "stress_max": 6, "evasion": 9 + c.rng.IntN(4),
				"traits":      map[string]int{"might": c.rng.IntN(4) - 1, "finesse": c.rng.IntN(4) - 1, "lore": c.rng.IntN(4) - 1},
				"experiences": []map[string]any{{"name": pick(c, pasts), "modifier": 2}},
				"carries":     []string{pick(c, things), pick(c, things)},
			}})
	})
}

// secondSeat is the poisonous event: somebody who sits at the table already
// takes another seat, which a faithful read model refuses.
func (c *campaign) secondSeat() event.Event {
	gm := c.players[0]
	return c.bySystem("participant.joined", "participant", id(c.rng, 26), map[string]any{
		"participant_id": id(c.rng, 26), "user_id": gm.user, "name": pick(c, people), "role": "player", "controller": "human",
		"campaign_access": "member", "pronouns": pick(c, pronouns), "avatar_asset_id": "avatar_" + pick(c, covers), "avatar_set_id": "sample_avatars_v1",
	})
}
