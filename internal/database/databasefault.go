package database

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
)

// DatabaseFault is something wrong with one of the two databases itself, as opposed to what is in
// it, as far as the process that answers knows.
type DatabaseFault struct {
	Database string        `json:"database" api:"enum=journal projections"`
	Kind     FaultKind     `json:"kind"`
	Level    finding.Level `json:"level" api:"enum=warn bad"`
	Says     string        `json:"says" redact:"-"` // what is wrong, what does not work meanwhile, and the way out
	Since    time.Time     `json:"since"`
	Stops    bool          `json:"stops"` // the process is not ready meanwhile
}

// FaultKind is what is wrong with a database.
type FaultKind string

// The kinds of faults.
const (
	FaultReplaced FaultKind = "replaced"  // the path of a SQLite database names another file than the open one, or none
	FaultDamaged  FaultKind = "damaged"   // a SQLite file is malformed as a whole
	FaultServer   FaultKind = "server"    // its server takes no writes, or not every event
	FaultFull     FaultKind = "full"      // the disk is full
	FaultWentBack FaultKind = "went_back" // it is an earlier one than before, and lacks commits; told for FaultTold
	FaultTable    FaultKind = "table"     // a table of a read model was dropped
	FaultWALHeld  FaultKind = "wal_held"  // a reader keeps the log of a SQLite file from being reused
)

// FaultTold is how long a database that went back is a fault.
const FaultTold = 24 * time.Hour

// FaultKinds are all kinds of faults, the gravest first.
var FaultKinds = []FaultKind{FaultReplaced, FaultDamaged, FaultServer, FaultFull, FaultWentBack, FaultTable, FaultWALHeld}

// faultKinds describes each kind. title is for the title of pages; guide is an anchor of the runbook.
var faultKinds = map[FaultKind]struct {
	level        finding.Level
	stops        bool
	title, guide string
}{
	FaultReplaced: {finding.Bad, true, "file replaced", "the-file-of-a-database-was-replaced"},
	FaultDamaged:  {finding.Bad, true, "file damaged", "a-database-is-damaged"},
	FaultServer:   {finding.Bad, true, "wrong server", "the-server-takes-no-writes"},
	FaultFull:     {finding.Bad, true, "disk full", "disk-full"},
	FaultWentBack: {finding.Bad, false, "database went back", "a-fail-over-that-lost-commits"},
	FaultTable:    {finding.Bad, false, "table missing", "a-table-of-a-read-model-was-dropped"},
	FaultWALHeld:  {finding.Warn, false, "log held", "a-reader-holds-the-log"},
}

// Guide is the anchor of the runbook's section about the fault.
func (k FaultKind) Guide() string { return faultKinds[k].guide }

// Title names the fault in the title of pages.
func (k FaultKind) Title() string { return faultKinds[k].title }

// NewDatabaseFault is a fault of a database; says is whole sentences.
func NewDatabaseFault(database string, kind FaultKind, since time.Time, says string) DatabaseFault {
	k := faultKinds[kind]
	return DatabaseFault{Database: database, Kind: kind, Level: k.level, Says: says, Since: since, Stops: k.stops}
}

// FullDisk is the fault of a database that cannot be written to because its disk is full.
func FullDisk(database string, since time.Time) DatabaseFault {
	meanwhile := "nothing is applied, and appended events queue up"
	if database == "journal" {
		meanwhile = "appends and actions are refused with status 507, and nothing is applied"
	}
	return NewDatabaseFault(database, FaultFull, since,
		fmt.Sprintf("The disk of the %s database is full: %s. Free up space; work resumes by itself, without a restart.", database, meanwhile))
}

// SortFaults orders faults by gravity.
func SortFaults(all []DatabaseFault) {
	slices.SortStableFunc(all, func(a, b DatabaseFault) int {
		return cmp.Compare(slices.Index(FaultKinds, a.Kind), slices.Index(FaultKinds, b.Kind))
	})
}

// Headline is what is wrong, without a capital and a period.
func (f DatabaseFault) Headline() string {
	end := strings.IndexAny(f.Says, ":;.")
	return event.Lowered(f.Says[:max(end, 0)])
}
