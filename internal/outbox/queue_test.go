package outbox_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// TestMain also runs these tests on PostgreSQL in a short run: locks and concurrent statements of several processes behave
// differently there.
func TestMain(m *testing.M) {
	os.Exit(enginetest.Main(m, "^Test(Postgres(Claim|EndLeases)|Claim_(marks|ofMany|sharesAWave)|Locks|RequeueRow_of|Settle_(leaves|of|touches)|SkipEvent_fences)"))
}

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	began   = storetest.Began
	one     = storetest.One
	two     = storetest.Two
)

// fixture is a store of the test's own with the packages that use it.
type fixture struct{ *enginetest.Rooms }

func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	return &fixture{enginetest.OpenRooms(tb, change...)}
}

// own is open for a test that runs beside others.
func own(t *testing.T, change ...func(*store.Options)) *fixture {
	return &fixture{enginetest.OwnRooms(t, change...)}
}

// beside opens a second store on the same databases, as another process would.
func (f *fixture) beside(change ...func(*store.Options)) *fixture {
	return &fixture{f.Rooms.Beside(change...)}
}

// must fails when a call does, whatever it returns besides.
func (f *fixture) must(_ any, err error) { must.OK(f.TB, err) }

func wantLost(tb testing.TB, err error) {
	must.Hold(tb, errors.Is(err, event.ErrLeaseLost), "got error %v, want a lost lease", err)
}

func TestClaim_takesWhatTheWorkerServesAlone(t *testing.T) {
	f := own(t)
	// The others have been due for longer and fill a reading step.
	for _, id := range []string{"other-1", "other-2", "other-3", "tria", "Trial-1", "triäl-1"} {
		f.AppendN(id, 1)
		f.Clock.Advance(1)
	}
	two := two
	two.Serves = storetest.ScopeOf(t, "one", "triäl-*", "none")
	must.Equal(t, f.ClaimOne(two, 1000).CampaignID, "triäl-1", "claimed")
	f.NoClaim(two)
	_, due, err := f.UntilDue(f.Ctx, storetest.ScopeOf(t, "one", "none-*"))
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
	claims, err := f.Claim(f.Ctx, one, outbox.ClaimLimits{Rows: 1, Lease: lease})
	must.Need(t, err == nil && len(claims) <= 0, "a suspect is claimed beside others: %+v (%v)", claims, err)
	for _, patterns := range []string{"b", "b*", "a"} {
		want := map[string]int{"a": 1}[patterns]
		w := outbox.Worker{ID: "w", Serves: storetest.ScopeOf(t, patterns)}
		due, err := f.SuspectDue(f.Ctx, w.Serves)
		must.Hold(t, err == nil && due == (want == 1), "%s: a suspect is due: %v, %v", patterns, due, err)
		must.Equal(t, len(must.Get(f.ClaimSuspect(f.Ctx, w, lease)).Or(t)), want, "serving", patterns, "claims")
	}
}

func TestRehearsals_keepTheLatestOfEachCampaign(t *testing.T) {
	f := own(t, storetest.InMode(campaign.ModeShadow))
	f.AppendN("a", 3)
	f.Halted("b", 1)
	for _, r := range []outbox.Rehearsal{
		{CampaignID: "a", RehearsedSeq: 1, FailedSeq: 2, Error: strings.Repeat("x", 70<<10), Fingerprint: "x"},
		{CampaignID: "b", RehearsedSeq: 1},
		{CampaignID: "a", RehearsedSeq: 3},
	} {
		must.OK(t, f.RecordRehearsal(f.Ctx, r))
	}
	for seq := int64(1); seq <= 3; seq++ {
		got := f.MustRow("a", seq).Rehearsal
		must.Hold(t, got != nil && *got == (campaign.Rehearsal{At: f.Clock.Now()}), "the rehearsal of event %d is %+v", seq, got)
	}
	waiting, err := f.OutstandingCampaigns(f.Ctx, "", 10)
	must.Hold(t, err == nil && len(waiting) == 1 && waiting[0] == (outbox.Outstanding{CampaignID: "a", HighWaterSeq: 3}), "outstanding are %+v, %v", waiting, err)
	must.Equal(t, len(must.Get(f.OutstandingCampaigns(f.Ctx, "a", 10)).Or(t)), 0, "after a outstanding")
}
