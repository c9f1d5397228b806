package search

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

const selectViews = `
select id, list, name, query, created_at
from views
where owner = $1
  and list = $2
order by name
limit $3`

// Views lists an owner's views of a list, by name.
func (s *Search) Views(ctx context.Context, owner, list string) ([]View, error) {
	return sqldb.Reading(ctx, s.core.Journal(), "list views", func(t *store.Tx) ([]View, error) {
		return sqldb.All(t, scanView, selectViews, owner, list, MaxViews)
	})
}

func scanView(row sqldb.Row) (v View, err error) {
	var created int64
	err = row.Scan(&v.ID, &v.List, &v.Name, &v.Query, &created)
	v.CreatedAt = sqldb.At(created)
	return v, err
}

const (
	countViews = `
select count(*)
from views
where owner = $1`

	upsertView = `
insert into views (owner, list, name, query, created_at)
values ($1, $2, $3, $4, $5)
on conflict (owner, list, name) do update set query = excluded.query`

	renameView = `
update views
set name = $3
where id = $2
  and owner = $1`

	viewNamed = `
select id
from views
where owner = $1
  and list = (select list from views where id = $2)
  and name = $3`

	deleteView = `
delete from views
where id = $2
  and owner = $1`
)

// SaveView keeps a view for its owner, in place of one with the same name. It returns
// event.ErrInvalid for one that cannot be kept, and event.ErrConflict for one too many.
func (s *Search) SaveView(ctx context.Context, owner string, v View) error {
	v, err := CheckView(v)
	if err != nil {
		return err
	}
	return s.core.Journal().Write(ctx, func(t *store.Tx) error {
		if _, err := t.Exec(upsertView, owner, v.List, v.Name, v.Query, s.core.Now()); err != nil {
			return fmt.Errorf("save view %q: %w", v.Name, err)
		}
		var kept int64
		if _, err := t.One([]any{&kept}, countViews, owner); err != nil {
			return fmt.Errorf("count views: %w", err)
		}
		if kept > MaxViews {
			return event.Conflict("there are %d views already, which is the limit; remove one first", MaxViews)
		}
		return nil
	})
}

// RenameView names a view of the owner anew. It returns event.ErrNotFound when the owner has none
// with the id, and event.ErrConflict when the name is taken.
func (s *Search) RenameView(ctx context.Context, owner string, id int64, name string) error {
	checked, err := CheckView(View{List: ViewedLists[0], Name: name})
	if err != nil {
		return err
	}
	return s.core.Journal().Write(ctx, func(t *store.Tx) error {
		var other int64
		taken, err := t.One([]any{&other}, viewNamed, owner, id, checked.Name)
		if err != nil {
			return fmt.Errorf("rename view %d: %w", id, err)
		}
		if taken && other != id {
			return event.Conflict("there is a view named %q already", checked.Name)
		}
		return changeView(t, renameView, owner, id, checked.Name)
	})
}

// RemoveView removes a view of the owner. It returns event.ErrNotFound when the owner has none with
// the id.
func (s *Search) RemoveView(ctx context.Context, owner string, id int64) error {
	return s.core.Journal().Write(ctx, func(t *store.Tx) error { return changeView(t, deleteView, owner, id) })
}

func changeView(t *store.Tx, query, owner string, id int64, more ...any) error {
	n, err := t.Exec(query, append([]any{owner, id}, more...)...)
	if err == nil && n == 0 {
		return event.NotFound("you have no view %d", id)
	}
	return err
}
