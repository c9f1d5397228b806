package maintenance

import (
	"context"
	"fmt"

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
	if err := m.core.Refuse(); err != nil {
		return false, err
	}
	limit := m.core.Now() - store.AppendKeyLife.Microseconds()
	old := false
	err = m.read(ctx, func(t *tx) error {
		var at int64
		old, err = t.One([]any{&at}, selectOldKey, limit)
		return err
	})
	if err == nil && old {
		err = m.write(ctx, func(t *tx) error {
			n, err := t.Exec(deleteKeys, limit, pruneKeys)
			more = n >= pruneKeys
			return err
		})
	}
	if err != nil {
		return false, fmt.Errorf("prune the keys of appends: %w", err)
	}
	return more, nil
}
