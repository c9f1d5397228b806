package runs

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// watchOrder makes a replayer note which rows get the key of another one, unless its rows are
// visited in the order of the live ones.
func (m *rehearsing) watchOrder(f *Replayer) error {
	if m.copyable() && f.scratch.KeepsOrder() || f.marks != nil {
		return nil
	}
	f.marks = &marks{Scratch: f.scratch}
	for _, shape := range m.set.Shapes() {
		for _, key := range m.set.Named(shape.Projection).UniqueKeys() {
			if key.Table != shape.Table {
				continue
			}
			if key.Vague {
				key.Columns = []string{"campaign_id"}
			}
			m.keys = append(m.keys, key)
			m.captured = append(m.captured, readmodel.CapturedTable{Name: key.Table, Columns: key.Columns, Key: key.Columns})
		}
	}
	return f.scratch.Capture(m.captured)
}

// forgetOrder forgets what was noted so far.
func (m *rehearsing) forgetOrder(f *Replayer) error {
	for i := range m.captured {
		if err := f.scratch.ForgetCaptured(i); err != nil {
			return err
		}
	}
	return nil
}

// orderDecides says of a campaign that passes that it might not have, with its rows stored in
// another order.
func (m *rehearsing) orderDecides(ctx context.Context, f *Replayer) error {
	for i, t := range m.captured {
		mark, found, err := f.scratch.OrderDecides(ctx, i, t, m.keys[i].Vague)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		seq, step, _ := strings.Cut(mark, " ")
		n, err := strconv.Atoi(step)
		if err != nil {
			return err
		}
		st := m.set.Statements()[n]
		return unrehearsedf("it would pass on a copy of its rows, but event %s updates several rows of %s at once (%s:%d): a row may get a unique key that another one still has, depending on the order in which the database visits the live rows",
			seq, t.Name, filepath.Base(st.File), st.Line)
	}
	return nil
}
