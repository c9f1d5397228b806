package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// TestMain lowers the number of random histories and the shrinking time of a test to its time budget; flags raise them.
func TestMain(m *testing.M) {
	if dir := os.Getenv(createIn); dir != "" {
		os.Exit(createAndAppend(dir))
	}
	if err := flag.Set("rapid.shrinktime", "10s"); err != nil {
		panic(err)
	}
	// These tests run on PostgreSQL too in a short run: locks, copies, ranges, and concurrent
	// statements of several processes behave differently there.
	const differs = "^Test(Postgres(Append|Claim|Commits|Condition|EndLeases|Events|Forbidden|Hints_wake|Lineage_spares|Migrations|Transactions)|Append_(gives|repeated|expected|inAGroup)|AppendOnce_of|Claim_(marks|ofMany|sharesAWave)|Condition_holds|EventsMatching_is|Journal_refuses|Locks|RequeueRow_of|Settle_(leaves|of|touches)|SkipEvent_fences)"
	os.Exit(dbtest.Main(m, differs, func(p dbtest.Pair) error {
		dbtest.Checks(size.Of(30, 12, 100))
		return storetest.Prepare(p)
	}))
}

func optionsIn(dir string) store.Options { return storetest.OptionsFor(dbtest.Files(dir)) }

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	began   = storetest.Began
	one     = storetest.One
	two     = storetest.Two
)

// impatient opens a store whose actions wait for no lease.
func impatient(o *store.Options) { o.Patience = time.Millisecond }

// fixture is a store of the test's own with the packages that use it.
type fixture struct {
	*enginetest.Rooms
	*tokens.Tokens
	Search *search.Search
	swaps  []store.Statement // prepared on a Scratch's connection
}

func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	return around(storetest.Open(tb, change...))
}

// own is open for a test that runs beside others.
func own(t *testing.T, change ...func(*store.Options)) *fixture {
	return around(storetest.Own(t, change...))
}

func openPair(tb testing.TB, p dbtest.Pair, c *storetest.Clock, change ...func(*store.Options)) *fixture {
	return around(storetest.OpenBoth(tb, p, c, change...))
}

func around(f *storetest.Fixture) *fixture {
	return &fixture{Rooms: enginetest.RoomsOf(f), Tokens: tokens.New(f.Store), Search: search.New(f.Store)}
}

// must fails when a call does, whatever it returns besides.
func (f *fixture) must(_ any, err error) { must.OK(f.TB, err) }

func (f *fixture) ok(errs ...error) { must.OK(f.TB, errors.Join(errs...)) }

// beside opens a second store on the same databases, as another process would.
func (f *fixture) beside(change ...func(*store.Options)) *fixture {
	return around(f.Fixture.Beside(change...))
}

func wantLost(tb testing.TB, err error) {
	must.Hold(tb, errors.Is(err, outbox.ErrLeaseLost), "got error %v, want a lost lease", err)
}

func scopeOf(t testing.TB, patterns ...string) outbox.Scope {
	return must.Get(outbox.ParseScope(patterns)).Or(t)
}

func TestClaim_takesWhatTheWorkerServesAlone(t *testing.T) {
	f := own(t)
	// The others have been due for longer and fill a reading step.
	for _, id := range []string{"other-1", "other-2", "other-3", "tria", "Trial-1", "triäl-1"} {
		f.AppendN(id, 1)
		f.Clock.Advance(1)
	}
	two := two
	two.Serves = scopeOf(t, "one", "triäl-*", "none")
	must.Equal(t, f.ClaimOne(two, 1000).CampaignID, "triäl-1", "claimed")
	f.NoClaim(two)
	_, due, err := f.UntilDue(f.Ctx, scopeOf(t, "one", "none-*"))
	must.Hold(t, !due && err == nil, "a campaign that is not served is due: %v", err)
	f.AppendN("one", 1)
	wait, due, err := f.UntilDue(f.Ctx, two.Serves)
	must.Hold(t, due && wait == 0 && err == nil, "due in %s: %v, %v", wait, due, err)
	must.Equal(t, f.ClaimOne(two, 1000).CampaignID, "one", "claimed")
	f.Sound()
}

func TestClaimSuspect_takesWhatTheWorkerServesAlone(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	for range 2 {
		f.ClaimOne(one, 10)
		f.Clock.Advance(2 * lease)
	}
	claims, err := f.Claim(f.Ctx, one, store.ClaimLimits{Rows: 1, Lease: lease})
	must.Need(t, err == nil && len(claims) <= 0, "a suspect is claimed beside others: %+v (%v)", claims, err)
	for _, patterns := range []string{"b", "b*", "a"} {
		want := map[string]int{"a": 1}[patterns]
		w := store.Worker{ID: "w", Serves: scopeOf(t, patterns)}
		due, err := f.SuspectDue(f.Ctx, w.Serves)
		must.Hold(t, err == nil && due == (want == 1), "%s: a suspect is due: %v, %v", patterns, due, err)
		must.Equal(t, len(must.Get(f.ClaimSuspect(f.Ctx, w, lease)).Or(t)), want, "serving", patterns, "claims")
	}
}

// asTheyAre sets o for a command that creates and migrates nothing.
func asTheyAre(o store.Options) store.Options {
	o.NoCreate, o.NoMigrate = true, true
	return o
}

// creating sets o for a command that creates, but does not migrate.
func creating(o store.Options) store.Options {
	o.NoMigrate = true
	return o
}

// createIn makes this program, started again by a test, create a pair of databases in a directory and append one event.
const createIn = "STORE_TEST_CREATE"

func createAndAppend(dir string) int {
	s, err := store.Open(context.Background(), creating(optionsIn(dir)))
	if err == nil {
		defer s.Close()
		_, err = s.Append(context.Background(), store.Append{Events: []outbox.Event{storetest.Event("a", "counted")}})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func TestPlan_listsWhatIsToComeAndChangesNothing(t *testing.T) {
	f, fresh := own(t), dbtest.Fresh(t)
	all, err := store.Plan(t.Context(), storetest.OptionsFor(fresh))
	must.Hold(t, err == nil && len(all) >= 2 && all[0].Database == "journal" && all[len(all)-1].Database == "projections", "for databases that are missing: %+v, %v", all, err)
	setup(t, asTheyAre(storetest.OptionsFor(fresh)), "the journal database")
	f.Close()
	f.Unchanged(func() {
		must.Equal(t, len(must.Get(store.Plan(t.Context(), storetest.OptionsFor(f.Pair))).Or(t)), 0, "for databases of this version")
	})
	f.Exec(`insert into goose_db_version (version_id, is_applied) values (9999, true)`)
	refused(t, storetest.No(store.Plan(t.Context(), storetest.OptionsFor(f.Pair))), outbox.ErrSetup, "version 9999", "newer outboxweb")
}

func TestRehearsals_keepTheLatestOfEachCampaign(t *testing.T) {
	f := own(t, storetest.InMode(outbox.ModeShadow))
	f.AppendN("a", 3)
	f.Halted("b", 1)
	for _, r := range []store.Rehearsal{
		{CampaignID: "a", RehearsedSeq: 1, FailedSeq: 2, Error: strings.Repeat("x", 70<<10), Fingerprint: "x"},
		{CampaignID: "b", RehearsedSeq: 1},
		{CampaignID: "a", RehearsedSeq: 3},
	} {
		must.OK(t, f.RecordRehearsal(f.Ctx, r))
	}
	for seq := int64(1); seq <= 3; seq++ {
		got := f.MustRow("a", seq).Rehearsal
		must.Hold(t, got != nil && *got == (outbox.Rehearsal{At: f.Clock.Now()}), "the rehearsal of event %d is %+v", seq, got)
	}
	waiting, err := f.OutstandingCampaigns(f.Ctx, "", 10)
	must.Hold(t, err == nil && len(waiting) == 1 && waiting[0] == (store.Outstanding{CampaignID: "a", HighWaterSeq: 3}), "outstanding are %+v, %v", waiting, err)
	must.Equal(t, len(must.Get(f.OutstandingCampaigns(f.Ctx, "a", 10)).Or(t)), 0, "after a outstanding")
}

// RowIs fails unless a row has this status, number of failed attempts, and time to its next attempt, as in "failed after 3, due in 4s".
func (f *fixture) RowIs(campaign string, seq int64, want string) {
	r := f.MustRow(campaign, seq).Row
	must.Equal(f.TB, fmt.Sprintf("%s after %d, due in %s", r.Status, r.AttemptCount, r.NextAttemptAt.Sub(f.Clock.Now())), want, "row", campaign, seq)
}

// FailsAfter applies the events of a claim up to last, and settles it with a failure of the next.
func (f *fixture) FailsAfter(w store.Worker, c store.Claim, last int64, message string) store.Settled {
	if last >= c.First {
		f.MustApply(c, last)
	}
	return f.MustSettle(w, store.Result{Claim: c, Applied: last, Failure: storetest.Failure(message)})
}

// Claims is ClaimOne of a claim as told.
func (f *fixture) Claims(w store.Worker, rows int, want string) store.Claim {
	c := f.ClaimOne(w, rows)
	must.Equal(f.TB, toldClaim(c), want, "claimed")
	return c
}

// toldClaim is a claim in words: its events, its epoch, and what is unusual about it.
func toldClaim(c store.Claim) string {
	text := fmt.Sprintf("%s %d-%d under %d", c.CampaignID, c.First, c.Last, c.Epoch)
	if c.Attempts > 0 {
		text += fmt.Sprintf(", after %d", c.Attempts)
	}
	for _, unusual := range []struct {
		word string
		is   bool
	}{{"counted", c.Counted}, {"bare", c.Bare}, {"with skips", !c.Unskipped}} {
		if unusual.is {
			text += ", " + unusual.word
		}
	}
	return text
}

// CountRows counts the rows with a status.
func (f *fixture) CountRows(status outbox.Status) int64 {
	return f.Number(`select count(*) from projection_apply_outbox where status = $1`, string(status))
}
