package readmodel

import (
	"context"
	"fmt"
	"strings"
)

// KeepsOrder reports whether LoadLive stores the copies in the order of the live rows, so that an
// update of several rows visits them in the same order. PostgreSQL stores rows where there is room,
// and reads them as its statistics advise.
func (c *Scratch) KeepsOrder() bool { return !c.model.Dialect.TempTables }

// OrderDecides returns the mark of a statement that gave a row of captured table i the key that
// another one had before: whether the database accepts that depends on which row it visits first.
// The table must be captured with the columns of one of its unique keys as columns and key. If these
// are vague, any statement that updated one row and added or updated another counts.
func (c *Scratch) OrderDecides(ctx context.Context, i int, t CapturedTable, vague bool) (mark string, found bool, err error) {
	same, changed := []string{"true"}, []string{fmt.Sprint(vague)}
	for j := range t.Key {
		if !vague {
			same = append(same, fmt.Sprintf("other.c%d = was.k%[1]d", j))
			changed = append(changed, fmt.Sprintf("was.c%d is distinct from was.k%[1]d", j))
		}
	}
	query := fmt.Sprintf(`
select was.mark
from %s as was
join %[1]s as other on other.mark = was.mark and other.id <> was.id and %s
where was.kind = %d
  and other.kind <> %d
  and (%s)
order by was.id
limit 1`, captureTable(i), strings.Join(same, " and "), CapturedUpdate, CapturedDelete, strings.Join(changed, " or "))
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return "", false, fmt.Errorf("look for updates whose order decides: %w", err)
	}
	defer rows.Close()
	if found = rows.Next(); found {
		err = rows.Scan(&mark)
	}
	if err == nil {
		err = rows.Err()
	}
	return mark, found, err
}
