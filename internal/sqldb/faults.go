package sqldb

import (
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/database"
)

// faults are what is wrong with a database, as noticed by this process. The zero value is ready for
// use.
type faults struct {
	mu  sync.Mutex
	all map[database.FaultKind]database.DatabaseFault
}

// SetFault records that something is wrong with the database until ClearFault; says is whole
// sentences. It keeps the time at which the same kind began.
func (d *DB) SetFault(kind database.FaultKind, says string) {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	since := time.Now().UTC()
	if earlier, ok := d.faults.all[kind]; ok {
		since = earlier.Since
	}
	if d.faults.all == nil {
		d.faults.all = map[database.FaultKind]database.DatabaseFault{}
	}
	d.faults.all[kind] = database.NewDatabaseFault(d.Name, kind, since, says)
}

// ClearFault ends a fault.
func (d *DB) ClearFault(kind database.FaultKind) {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	delete(d.faults.all, kind)
}

// Faults lists what is wrong with the database now, the gravest first.
func (d *DB) Faults() (found []database.DatabaseFault) {
	since, full := d.Full()
	_ = d.InPlace() // it is a fault, too
	d.examine()
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	for _, kind := range database.FaultKinds {
		if f, ok := d.faults.all[kind]; ok && !(kind == database.FaultWentBack && time.Since(f.Since) > database.FaultTold) {
			found = append(found, f)
		} else if kind == database.FaultFull && full {
			found = append(found, database.FullDisk(d.Name, since))
		}
	}
	return found
}
