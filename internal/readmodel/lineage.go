package readmodel

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// lineage is what this process remembers of the projections, to notice when the server is replaced by
// one that lacks commits.
type lineage struct {
	number atomic.Int64

	mu   sync.Mutex
	last advance
}

// advance is the last one that this process has committed.
type advance struct {
	campaign string // empty when there was none
	seq      int64
	at       int64 // in microseconds
}

// Lineage is a number that changes when the projections turn out to be earlier ones.
func (d *Database) Lineage() int64 { return d.lineage.number.Load() }

// advanced remembers a committed transaction.
func (d *Database) advanced(a *ApplyTx) {
	d.lineage.mu.Lock()
	defer d.lineage.mu.Unlock()
	for campaign, seq := range a.reached {
		d.lineage.last = advance{campaign, seq, a.now}
		return
	}
}

const selectUpdated = `
select applied_seq, updated_at
from projection_watermarks
where campaign_id = $1`

// compare compares what the process remembers with the projections that a new connection leads to. A
// watermark that was set back since, as when a skip is undone, was updated later.
func (d *Database) compare(within sqldb.Within) error {
	d.lineage.mu.Lock()
	l := d.lineage.last
	d.lineage.mu.Unlock()
	if l.campaign == "" {
		return nil
	}
	var seq, updated int64
	err := within(sqldb.BeginRead, func(t *sqldb.Tx) error {
		_, err := t.One([]any{&seq, &updated}, selectUpdated, l.campaign)
		return err
	})
	if err != nil || seq >= l.seq || updated > l.at {
		return err
	}
	d.lineage.mu.Lock()
	defer d.lineage.mu.Unlock()
	if d.lineage.last != l { // found on another connection, or advanced since
		return nil
	}
	d.lineage.number.Add(1)
	d.lineage.last = advance{}
	d.ClearFault(database.FaultWentBack) // an earlier time
	d.SetFault(database.FaultWentBack, fmt.Sprintf("The projections database went back: campaign %q was applied up to event %d, and is at event %d now. Events are applied again from the journal; pauses and quarantines of projections since then are lost.", l.campaign, l.seq, seq))
	return nil
}
