package store_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// The migration that adds the tag index fills it from the existing events.
func TestMigrations_indexTheTagsOfEventsThatAreThere(t *testing.T) {
	t.Parallel()
	f := open(t)
	odd := storetest.Event("a", "noted")
	odd.Tags = []byte(`{"twice":"1","twice":"2","none":null,"face":"\ud83d\ude00"}`)
	f.MustAppend(storetest.Event("a", "counted"), storetest.Tagged("a", "seat.taken", "seat", "1", "show", "x"), odd)
	f.Close()
	trigger := `drop trigger events_tag`
	if dbtest.Postgres() {
		trigger = `drop function events_tag() cascade`
	}
	f.takeIdentityBack()
	for _, statement := range []string{trigger, `drop table event_tags`, `drop index events_by_type`, `delete from goose_db_version where version_id = 8`} {
		f.Exec(statement)
	}
	half := int64(0)
	if dbtest.Postgres() { // PostgreSQL cannot parse such tags
		f.Exec(`insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
select 'b', 1, 'e-1', 'noted', 1, 1, '', '', '', '', '', '', '', '', '{"half":"\ud83d","whole":"1"}', '{}', '{}', '', ''`)
		half = f.Number(`select max(position) from events`)
	}
	o := storetest.OptionsFor(f.Pair)
	o.NoMigrate = true
	setup(t, o, "the journal database", "has version 7 and this program needs", "outboxweb migrate")
	g := f.beside()
	for _, c := range []struct {
		item     outbox.ConditionItem
		position int64
	}{
		{storetest.Item("", "seat", "1"), 2}, {storetest.Item("seat.taken"), 2}, {storetest.Item("", "twice", "2"), 3}, {storetest.Item("", "none", ""), 3}, {storetest.Item("", "face", "😀"), 3},
		{storetest.Item("", "half", "\ufffd"), half}, {storetest.Item("", "whole", "1"), half},
	} {
		if c.position == 0 {
			continue
		}
		_, err := g.AppendUnless(storetest.Event("c", "x"), 0, c.item)
		blockedBy(t, err, c.position)
	}
	if _, err := g.AppendUnless(storetest.Event("c", "x"), 0, storetest.Item("", "twice", "1")); err != nil {
		t.Error(err)
	}
	g.MustAppend(storetest.Tagged("a", "seat.taken", "seat", "2"))
	_, err := g.AppendUnless(storetest.Event("c", "x"), 0, storetest.Item("", "seat", "2"))
	blockedBy(t, err, g.Number(`select max(position) from events`))
	if half == 0 {
		g.Sound()
	} else if report, err := g.Check(g.Ctx, storetest.Quiet); err != nil || tagViolations(report) != 0 {
		t.Errorf("check: %+v, %v", report.Violations, err)
	}
}

func tagViolations(r outbox.CheckReport) (n int) {
	for _, v := range r.Violations {
		if v.Invariant == "tag_index" {
			n++
		}
	}
	return n
}
