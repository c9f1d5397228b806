package sample

import (
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
)

// play queues the next stretch of the campaign: a session's opening, a round
// of play, or its end.
func (c *campaign) play() {
	switch {
	case c.session == "":
		c.openSession()
	case c.rounds == 0:
		c.endSession()
	default:
		c.rounds--
		c.round()
	}
}

func (c *campaign) gm() player { return c.players[0] }

func (c *campaign) hero() player { return c.players[1+c.rng.IntN(len(c.players)-1)] }

func (c *campaign) openSession() {
	c.rounds = 6 + c.rng.IntN(20)
	session, scene, gm := id(c.rng, 26), id(c.rng, 26), c.gm()
	name := pick(c, troubles)
	c.then(func() event.Event {
		c.session = session
		controllers := make([]map[string]string, 0, len(c.players))
		for _, p := range c.players[1:] {
			controllers = append(controllers, map[string]string{"character_id": p.character, "participant_id": p.participant})
		}
		return c.byPlayer(gm, "session.started", "session", session, map[string]any{
			"session_id": session, "session_name": name, "character_controllers": controllers})
	}, func() event.Event {
		return c.byPlayer(gm, "session.gm_authority_set", "session", session, map[string]any{"session_id": session, "participant_id": gm.participant})
	}, func() event.Event {
		c.scene = scene
		return c.inScene(c.byPlayer(gm, "scene.created", "scene", scene, map[string]any{
			"scene_id": scene, "name": pick(c, places), "character_ids": []string{c.players[1].character}}))
	}, func() event.Event {
		return c.byPlayer(gm, "session.scene_activated", "session", session, map[string]any{"session_id": session, "active_scene_id": scene})
	})
	for _, p := range c.players[2:] {
		c.then(func() event.Event {
			return c.inScene(c.byPlayer(gm, "scene.character_added", "scene", scene, map[string]any{"scene_id": scene, "character_id": p.character}))
		})
	}
}

func (c *campaign) endSession() {
	gm, session, scene := c.gm(), c.session, c.scene
	c.then(func() event.Event {
		return c.inScene(c.byPlayer(gm, "scene.ended", "scene", scene, map[string]any{"scene_id": scene}))
	})
	if c.rng.IntN(3) == 0 {
		c.then(func() event.Event {
			return c.byPlayer(gm, "session.recap_recorded", "session", session, map[string]any{"session_id": session,
				"markdown": fmt.Sprintf("## What happened\n- They reached %s\n- %s made a choice nobody expected\n", pick(c, places), pick(c, heroes))})
		})
	}
	c.then(func() event.Event {
		e := c.byPlayer(gm, "session.ended", "session", session, map[string]any{"session_id": session})
		c.session, c.scene, c.foes = "", "", nil
		return e
	})
}

// round queues one of the things that happen at a table, the likelier ones
// more often.
func (c *campaign) round() {
	switch n := c.rng.IntN(100); {
	case n < 55:
		c.roll()
	case n < 70:
		c.danger()
	case n < 78:
		c.gate()
	case n < 86:
		c.countdown()
	case n < 92:
		c.spotlight()
	case n < 96:
		c.grow()
	default:
		c.note()
	}
}

// roll is a hero's action: the dice, and what came of it.
func (c *campaign) roll() {
	hero, roll := c.hero(), id(c.rng, 26)
	hope, dread, modifier, difficulty := 1+c.rng.IntN(12), 1+c.rng.IntN(12), c.rng.IntN(5)-1, 8+c.rng.IntN(10)
	outcome := outcomeOf(hope, dread, modifier, difficulty)
	c.then(func() event.Event {
		e := c.bySystem("action.roll_resolved", "roll", roll, map[string]any{
			"request_id": roll, "roll_seq": c.seq, "outcome": outcome,
			"results": map[string]any{"dice": map[string]int{"hope_die": hope, "fear_die": dread}, "modifier": modifier,
				"difficulty": difficulty, "total": hope + dread + modifier, "crit": hope == dread,
				"rng": map[string]any{"rng_algo": "pcg-v1", "seed_source": "SERVER", "seed_used": c.rng.Uint64()}},
			"system_data": map[string]any{"character_id": hero.character, "trait": pick(c, []string{"might", "finesse", "lore"})}})
		e.RequestID = roll
		return c.inScene(e)
	}, func() event.Event {
		e := c.bySystem("action.outcome_applied", "outcome", roll, map[string]any{
			"request_id": roll, "roll_seq": c.seq - 1, "requires_complication": dread > hope, "targets": []string{hero.character},
			"applied_changes": []map[string]any{{"character_id": hero.character, "field": "hope", "before": 2, "after": 3}}})
		e.CorrelationID, e.RequestID = roll, roll
		return c.inScene(e)
	})
	switch {
	case dread > hope:
		c.fearRises()
	case len(c.foes) > 0:
		c.strike()
	}
}

func outcomeOf(hope, dread, modifier, difficulty int) string {
	verdict, with := "FAILURE", "FEAR"
	if hope+dread+modifier >= difficulty {
		verdict = "SUCCESS"
	}
	if hope >= dread {
		with = "HOPE"
	}
	return verdict + "_WITH_" + with
}

func (c *campaign) fearRises() {
	c.fear = min(c.fear+1, 12)
	fear := c.fear
	c.then(func() event.Event {
		return c.byRules("gm_fear_changed", "campaign", c.id, map[string]any{"after": fear, "reason": "roll_with_fear"})
	})
}

func (c *campaign) strike() {
	i := c.rng.IntN(len(c.foes))
	marks := 1 + c.rng.IntN(3)
	c.foes[i].hp = max(0, c.foes[i].hp-marks)
	struck := c.foes[i]
	c.then(func() event.Event {
		return c.byRules("adversary_damage_applied", "adversary", struck.id, map[string]any{
			"adversary_id": struck.id, "hp_after": struck.hp, "armor_after": 0, "marks": marks,
			"severity": []string{"minor", "major", "severe"}[marks-1], "damage_type": pick(c, []string{"physical", "magic"}), "source": "attack"})
	})
	if struck.hp == 0 {
		c.foes = append(c.foes[:i], c.foes[i+1:]...)
	}
}

// danger is something turning up.
func (c *campaign) danger() {
	f := foe{id: id(c.rng, 26), name: pick(c, foes), hp: 3 + c.rng.IntN(6)}
	c.foes = append(c.foes, f)
	c.then(func() event.Event {
		return c.byRules("adversary_created", "adversary", f.id, map[string]any{
			"adversary_id": f.id, "name": f.name, "kind": pick(c, []string{"standard", "solo", "swarm"}), "hp": f.hp, "hp_max": f.hp, "stress": 0, "stress_max": 3,
			"evasion": 10 + c.rng.IntN(5), "armor": 0, "major_threshold": 6, "severe_threshold": 12, "scene_id": c.scene, "session_id": c.session})
	})
	if c.fear > 0 && c.rng.IntN(2) == 0 {
		c.fear--
		fear := c.fear
		c.then(func() event.Event {
			return c.byRules("gm_move_applied", "session", c.session, map[string]any{"fear_spent": 1,
				"target": map[string]any{"type": "direct_move", "description": f.name + " presses forward."}})
		}, func() event.Event {
			return c.byRules("gm_fear_changed", "campaign", c.id, map[string]any{"after": fear})
		})
	}
}

// gate is a moment at which the table has to decide before play goes on.
func (c *campaign) gate() {
	gate, gm := id(c.rng, 26), c.gm()
	c.then(func() event.Event {
		return c.inScene(c.bySystem("session.gate_opened", "session_gate", gate, map[string]any{
			"gate_id": gate, "gate_type": "gm_consequence", "reason": "gm_consequence", "metadata": map[string]any{"roll_seq": c.seq - 1}}))
	}, func() event.Event {
		return c.byPlayer(gm, "session.gate_resolved", "session_gate", gate, map[string]any{"gate_id": gate, "decision": pick(c, []string{"allow", "allow", "deny"})})
	})
}

func (c *campaign) countdown() {
	countdown, from := id(c.rng, 26), 3+c.rng.IntN(4)
	c.then(func() event.Event {
		return c.byRules("scene_countdown_created", "scene_countdown", countdown, map[string]any{
			"countdown_id": countdown, "name": pick(c, troubles), "starting_value": from, "remaining_value": from, "status": "active",
			"advancement_policy": "manual", "loop_behavior": "none", "tone": "consequence", "scene_id": c.scene, "session_id": c.session})
	})
	for left := from - 1; left > 0 && c.rng.IntN(3) > 0; left-- {
		c.then(func() event.Event {
			return c.byRules("scene_countdown_advanced", "scene_countdown", countdown, map[string]any{
				"countdown_id": countdown, "advanced_by": 1, "before_remaining": left + 1, "after_remaining": left,
				"status_before": "active", "status_after": "active", "reason": "time_passes", "triggered": false})
		})
	}
}

func (c *campaign) spotlight() {
	hero, condition := c.hero(), pick(c, conditions)
	c.then(func() event.Event {
		return c.byPlayer(c.gm(), "session.spotlight_set", "session", c.session, map[string]any{"spotlight_type": "character", "character_id": hero.character})
	}, func() event.Event {
		return c.byRules("condition_changed", "character", hero.character, map[string]any{
			"character_id": hero.character, "added": []map[string]string{{"id": condition, "label": condition}},
			"conditions_after": []map[string]string{{"id": condition, "label": condition}}, "source": "scene"})
	})
}

// grow is what changes about the people: a character's or a seat's details.
func (c *campaign) grow() {
	hero := c.hero()
	if c.rng.IntN(3) == 0 {
		c.then(func() event.Event {
			return c.byPlayer(hero, "participant.updated", "participant", hero.participant, map[string]any{
				"participant_id": hero.participant, "fields": map[string]any{"pronouns": pick(c, pronouns)}})
		})
		return
	}
	c.then(func() event.Event {
		return c.byPlayer(hero, "character.updated", "character", hero.character, map[string]any{
			"character_id": hero.character, "fields": map[string]any{"notes": "Carries " + pick(c, things) + " from " + pick(c, places) + "."}})
	})
}

func (c *campaign) note() {
	c.then(func() event.Event {
		return c.bySystem("story.note_added", "note", id(c.rng, 26), map[string]any{
			"content": pick(c, heroes) + " asked about " + pick(c, places) + "; " + pick(c, foes) + " may be behind it."})
	})
}
