package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Events of moved rows are kept beside the source's table, for the time of the source: a journal that
// fails over to a standby without its last commits, or is restored from a backup, lacks events whose
// rows are gone. The newest kept event tells: if the journal has it, it has all.
const (
	keptTable = "outboxweb_intake_moved"

	createKept = `create table if not exists %s (id %s primary key, source_table text not null, journal text not null, campaign_id text not null, event_id text not null, event text not null, moved_at bigint not null)`

	newestKept = `
select campaign_id, event_id
from %s
where source_table = $1
  and journal = $2
order by id desc
limit 1`

	selectKept = `
select id, event
from %s
where id > $3
  and source_table = $1
  and journal = $2
order by id
limit $4`

	insertKept = `
insert into %s (source_table, journal, moved_at, campaign_id, event_id, event)
values ($1, $2, $3, $4, $5, $6)`

	insertManyKept = `
insert into %s (source_table, journal, moved_at, campaign_id, event_id, event)
select $1, $2, $3, k.campaign, k.event_id, k.event
from unnest(cast($4 as text[]), cast($5 as text[]), cast($6 as text[])) with ordinality as k(campaign, event_id, event, n)
order by k.n`

	deleteKept = `
delete from %s
where id = $1`

	// Those that are not old enough yet are behind the first ones.
	expireKept = `
delete from %s
where id in (select id from %[1]s where source_table = $1 order by id limit $3)
  and moved_at < $2`
)

// keptEvent is the event of a row that was moved.
type keptEvent struct {
	id    int64
	event event.Event
}

func (t *table) kept(query string, more ...any) string {
	return fmt.Sprintf(query, append([]any{t.owners.kept}, more...)...)
}

// keeps makes the table of kept events, if this source has them.
func (t *table) keeps(ctx context.Context) error {
	if t.keep == 0 {
		return nil
	}
	if _, err := t.newest(ctx); err == nil {
		return nil
	}
	id := "integer" // SQLite counts up from the largest
	if t.postgres != nil {
		id = "bigint generated always as identity"
	}
	create := t.kept(createKept, id)
	_, err := t.deleters.ExecContext(ctx, create)
	return t.mayNot(err, create, t.owners.kept)
}

// newest reads the ids of the kept event that was journalled last, and of its campaign; none without
// one.
func (t *table) newest(ctx context.Context) (ids []any, err error) {
	rows, err := t.readers.QueryContext(ctx, t.kept(newestKept), t.owners.name, t.journal)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if rows.Next() {
		ids = []any{"", ""}
		err = rows.Scan(&ids[0], &ids[1])
	}
	return ids, errors.Join(err, rows.Err())
}

// keptAfter reads kept events behind one, in the order in which they were journalled.
func (t *table) keptAfter(ctx context.Context, id int64) (all []keptEvent, err error) {
	err = t.call(ctx, func(ctx context.Context) error {
		rows, err := t.readers.QueryContext(ctx, t.kept(selectKept), t.owners.name, t.journal, id, appendAtOnce)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var k keptEvent
			var text []byte
			if err := errors.Join(rows.Scan(&k.id, &text), json.Unmarshal(text, &k.event)); err != nil {
				return fmt.Errorf("read a kept event: %w", err)
			}
			all = append(all, k)
		}
		return rows.Err()
	})
	return all, err
}

// keepRows keeps the events of rows that were journalled, in the transaction that deletes the rows.
func (t *table) keepRows(ctx context.Context, in execer, rows []row) error {
	var campaigns, ids, texts []string
	for i := range rows {
		if e := rows[i].event; t.keep > 0 && rows[i].journalled {
			e.Seq = 0 // its condition was met
			var text bytes.Buffer
			encoder := json.NewEncoder(&text)
			encoder.SetEscapeHTML(false) // which would be other content
			if err := encoder.Encode(e); err != nil {
				return err
			}
			campaigns, ids, texts = append(campaigns, e.CampaignID), append(ids, e.EventID), append(texts, text.String())
		}
	}
	if t.postgres != nil && len(ids) > 0 {
		_, err := in.ExecContext(ctx, t.kept(insertManyKept), t.owners.name, t.journal, t.now(), campaigns, ids, texts)
		return err
	}
	for i := range ids {
		if _, err := in.ExecContext(ctx, t.kept(insertKept), t.owners.name, t.journal, t.now(), campaigns[i], ids[i], texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkKept journals kept events again if the journal lacks them, before rows that are younger. It
// returns nil where none are kept.
func (d *drain) checkKept(ctx context.Context) error {
	if d.keep == 0 {
		return nil
	}
	var newest []any
	err := d.table.call(ctx, func(ctx context.Context) (err error) {
		newest, err = d.table.newest(ctx)
		return err
	})
	if err != nil || newest == nil {
		return ofSource(err)
	}
	has := 0
	err = d.Intake.core.Journal().Read(ctx, func(t *store.Tx) error {
		_, err := t.One([]any{&has}, `select 1 from events where campaign_id = $1 and event_id = $2`, newest...)
		return err
	})
	if err != nil || has == 1 {
		return err
	}
	lacked := 0
	for last := int64(0); ; {
		all, err := d.table.keptAfter(ctx, last)
		if err != nil {
			return ofSource(err)
		}
		if len(all) == 0 {
			d.log.Error("the journal went back: it lacked events whose rows were moved, and has them again", "events", lacked)
			return nil
		}
		last = all[len(all)-1].id
		made, err := d.appendKept(ctx, all)
		if lacked += made; err != nil {
			return err
		}
	}
}

// appendKept forgets an event that the journal refuses, as it has another one of that id by now.
func (d *drain) appendKept(ctx context.Context, all []keptEvent) (made int, err error) {
	for len(all) > 0 {
		events := make([]event.Event, len(all))
		for i := range all {
			events[i] = all[i].event
		}
		_, err := d.Intake.core.Append(ctx, store.Append{Events: events, AnyTime: true, Then: func(t *store.Tx, result []store.Appended) error {
			made = created(result)
			return d.lease.held(t, int64(made), d.Intake.core.Now())
		}})
		refusal, ok := errors.AsType[*event.Refusal](err)
		if !ok || !rejects(refusal) {
			return made, err
		}
		lost := all[refusal.Index]
		d.log.Error("the journal went back and does not take a moved event again", "campaign", lost.event.CampaignID, "event_id", lost.event.EventID, "reason", refusal)
		if err := d.onKept(ctx, deleteKept, lost.id); err != nil {
			return 0, err
		}
		all = append(all[:refusal.Index:refusal.Index], all[refusal.Index+1:]...)
	}
	return 0, nil
}

// expire forgets kept events whose time is over, some at a time.
func (d *drain) expire(ctx context.Context) error {
	if d.keep == 0 {
		return nil
	}
	return d.onKept(ctx, expireKept, d.table.owners.name, d.Intake.core.Now()-d.keep.Microseconds(), 2*d.table.batch)
}

func (d *drain) onKept(ctx context.Context, query string, args ...any) error {
	return ofSource(d.table.call(ctx, func(ctx context.Context) error {
		_, err := d.table.deleters.ExecContext(ctx, d.table.kept(query), args...)
		return err
	}))
}
