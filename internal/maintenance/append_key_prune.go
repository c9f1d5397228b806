package maintenance

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/store"
)

// pruneKeys is how many append keys one transaction deletes.
const pruneKeys = 5000

const (
	selectOldKey = `
select at
from append_keys
where at <= $1
order by at
limit 1`

	// Keys with the same timestamp are deleted together.
	deleteKeys = `
delete from append_keys
where at <= (
    select max(at)
    from (
      select at
      from append_keys
      where at <= $1
      order by at
      limit $2
    ) as oldest
  )`
)

// PruneAppendKeys deletes expired append keys, in small steps, and returns true while there may
// be more. It writes nothing when there is none.
func (m *Maintenance) PruneAppendKeys(ctx context.Context) (more bool, err error) {
	limit := m.core.Now() - store.AppendKeyLife.Microseconds()
	return m.prune(ctx, "the keys of appends", []statement{{selectOldKey, []any{limit}}}, func(t *tx) (bool, error) {
		n, err := t.Exec(deleteKeys, limit, pruneKeys)
		return n >= pruneKeys, err
	})
}
