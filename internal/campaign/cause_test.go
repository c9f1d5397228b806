package campaign

import (
	"fmt"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestScore_isEventsTimesMinutes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		events int64
		age    time.Duration
		want   int64
	}{
		{0, time.Hour, 0}, {1, 0, 1}, {141, 20 * time.Second, 141}, {141, 12 * time.Minute, 1692}, {10, 59 * time.Second, 10},
		{10, -time.Hour, 10}, {-3, time.Hour, 0}, {math.MaxInt64 / 2, time.Hour, math.MaxInt64},
	} {
		must.Equal(t, Score(c.events, c.age), c.want, c.events, "events for", c.age)
	}
}

func TestCompareGroups_mostBlockedCampaignsFirst(t *testing.T) {
	t.Parallel()
	worstFirst := []ErrorGroup{
		{Fingerprint: "a bad deploy", Heads: 40, Campaigns: 40, Score: 68_000, Dead: 40},
		{Fingerprint: "one campaign for weeks", Heads: 1, Campaigns: 1, Score: 3_000_000, Dead: 1},
		{Fingerprint: "one campaign today", Heads: 1, Campaigns: 1, Score: 10, Dead: 9},
		{Fingerprint: "retried in many", Campaigns: 30, Score: 100, Failed: 30},
		{Fingerprint: "retried in a few", Campaigns: 2, Score: 900, Failed: 2},
		{Fingerprint: "behind other heads", Dead: 5},
		{Fingerprint: "likewise, a", Dead: 1},
		{Fingerprint: "likewise, b", Dead: 1},
	}
	shuffled := slices.Clone(worstFirst)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	slices.SortFunc(shuffled, CompareGroups)
	for i, g := range shuffled {
		must.Equal(t, g.Fingerprint, worstFirst[i].Fingerprint, "place", "has")
	}
}

func TestAddCampaign_countsAllAndNamesTheWorst(t *testing.T) {
	t.Parallel()
	var g ErrorGroup
	soon, later := noon.Add(time.Minute), noon.Add(time.Hour)
	for _, i := range rand.Perm(50) {
		c := CauseCampaign{CampaignID: fmt.Sprintf("c-%02d", i), HeadStatus: event.Dead, EventsWaiting: int64(i), Score: int64(i)}
		if i >= 45 {
			c.HeadStatus, c.NextAttemptAt, c.Score = event.Failed, &later, 1000
		}
		if i == 47 {
			c.NextAttemptAt = &soon
		}
		g.AddCampaign(c)
	}
	must.Hold(t, g.Campaigns == 50 && g.Heads == 45 && g.EventsWaiting == 49*50/2 && g.Score == 44*45/2+5000 && g.NextAttemptAt == &soon, "%+v", g)
	must.Hold(t, len(g.Worst) == CausesNamed && g.Worst[0].CampaignID == "c-44" && g.Worst[CausesNamed-1].CampaignID == "c-25" && slices.IsSortedFunc(g.Worst, compareCampaigns), "named are %+v", g.Worst)
	g.Capped = true
	must.Equal(t, g.Reach(), "at least 45 campaigns blocked, 5 campaigns retrying, 1,225 events waiting", "it says")
	must.Equal(t, (ErrorGroup{Dead: 1}).Reach(), "1 row behind another failure", "it says")
	must.Equal(t, (ErrorGroup{Rehearsed: 2, Campaigns: 2, EventsWaiting: 3}).Reach(), "2 campaigns would be blocked, 3 events waiting", "it says")
}

// Of more campaigns than were counted a rehearsal does not tell that every one failed.
func TestRestOn_ofACountThatIsALowerBound(t *testing.T) {
	t.Parallel()
	g := AssessedGroup{ErrorGroup: ErrorGroup{Dead: 3, Heads: 3, Capped: true}, Outlook: OutlookSome, Verdict: "So"}
	g.RestOn(7, HeadsTried{Passed: 1, Failed: 9})
	want := "So, and with the loaded files 1 campaign passed rehearsal 7, which did not try all: rehearse again"
	must.Hold(t, g.Verdict == want && g.Outlook == OutlookSome && g.PartlyRehearsed(), "%s, %q", g.Outlook, g.Verdict)
}

// Where some rows failed again with what is loaded now, a rehearsal tells of the others; Go has none.
func TestRemedy_ofRowsOfWhichSomeWereRetried(t *testing.T) {
	t.Parallel()
	now := Running{Build: "b", Versions: map[string]string{"seats": "new"}, InGo: map[string]bool{}}
	tried := func(version string, rows int64) Tried {
		return Tried{Build: "b", Projection: "seats", ProjectionVersion: version, Attempts: rows, Rows: rows}
	}
	all := ErrorGroups{Groups: []ErrorGroup{{Dead: 26, Attempts: 26, Alike: 26, Tried: []Tried{tried("new", 1), tried("old", 25)}}}}
	const found = "1 of 26 rows failed with the loaded version of projection seats, and the others with an earlier one alone: "
	g := all.Assessed(now, nil)[0]
	must.Hold(t, g.Remedy() == RemedyRehearse && g.Verdict == found+"rehearse the loaded file to see which of those would pass", "%s: %s", g.Remedy(), g.Verdict)
	now.InGo["seats"] = true
	g = all.Assessed(now, nil)[0]
	must.Hold(t, g.Remedy() == RemedyRequeue && g.Verdict == found+"requeue those with a canary to see which pass", "%s: %s", g.Remedy(), g.Verdict)
}

func TestRemedy_comesFromTheOutlook(t *testing.T) {
	t.Parallel()
	dead, failed := ErrorGroup{Dead: 1}, ErrorGroup{Failed: 1}
	for _, c := range []struct {
		group AssessedGroup
		want  Remedy
	}{
		{AssessedGroup{ErrorGroup: dead, Outlook: OutlookSome}, RemedyRequeue},
		{AssessedGroup{ErrorGroup: dead, Outlook: OutlookUnknown}, RemedyRequeue},
		{AssessedGroup{ErrorGroup: dead, Outlook: OutlookNone}, RemedyInspect},
		{AssessedGroup{ErrorGroup: dead, Outlook: OutlookSome, Operation: &GroupOperation{ID: 7}}, RemedyWatch},
		{AssessedGroup{ErrorGroup: failed, Outlook: OutlookUnknown}, RemedyWait},
		{AssessedGroup{ErrorGroup: failed, Outlook: OutlookNone}, RemedyInspect},
	} {
		must.Equal(t, c.group.Remedy(), c.want)
	}
}

func TestAssessed_namesTheLatestOperationAndWhatIsLoaded(t *testing.T) {
	t.Parallel()
	now := Running{Build: "v2", Versions: map[string]string{"seats": "b"}}
	all := ErrorGroups{Groups: []ErrorGroup{
		{Fingerprint: "x", Tried: []Tried{{Build: "v2", Projection: "seats", ProjectionVersion: "b"}}},
		{Fingerprint: "y", Tried: []Tried{{Build: "v1", Projection: "seats", ProjectionVersion: "b"}, {Build: "v2", Projection: "seats", ProjectionVersion: "a"}}},
	}}.Assessed(now, []GroupOperation{{ID: 8, Fingerprint: "x", Phase: "canary"}, {ID: 7, Fingerprint: "x"}})
	x := all[0]
	must.Hold(t, x.FailsNow && x.Operation != nil && x.Operation.ID == 8, "x: %+v", x)
	y := all[1]
	must.Hold(t, !y.FailsNow && y.Operation == nil, "y: %+v", y)
}

func TestStuckWithoutError_isWhatNeitherRetriesNorOperatorsExplain(t *testing.T) {
	t.Parallel()
	long, short := noon.Add(-time.Hour), noon.Add(-10*time.Second)
	mine := Surroundings{Worker: &WorkerSummary{Running: true, Campaigns: scopeOf([]string{"a*"})}}
	waiting := Campaign{CampaignID: "a-1", HighWaterSeq: 3, HeadSeq: 1, HeadStatus: event.Pending, DueAt: long, OldestEnqueuedAt: long}
	with := func(change func(*Campaign)) Campaign { c := waiting; change(&c); return c }
	for name, c := range map[string]struct {
		campaign Campaign
		want     bool
	}{
		"due":                   {waiting, false},
		"dead":                  {with(func(c *Campaign) { c.HeadStatus = event.Dead }), false},
		"paused":                {with(func(c *Campaign) { c.Paused = &Pause{} }), false},
		"diverged":              {with(func(c *Campaign) { c.Diverged = "so" }), true},
		"served by nobody":      {with(func(c *Campaign) { c.CampaignID = "b-1" }), true},
		"not queued":            {with(func(c *Campaign) { c.Unqueued = true }), true},
		"not queued for a bit":  {with(func(c *Campaign) { c.Unqueued, c.OldestEnqueuedAt = true, short }), false},
		"without a row":         {with(func(c *Campaign) { c.HeadSeq, c.HeadStatus = 0, "" }), true},
		"held by a run":         {with(func(c *Campaign) { c.Lease = &Lease{Owner: RunOwner(7, "p"), ExpiresAt: noon.Add(time.Minute)} }), true},
		"held by a worker":      {with(func(c *Campaign) { c.Lease = &Lease{Owner: "w", ExpiresAt: noon.Add(time.Minute)} }), false},
		"everything is applied": {Campaign{CampaignID: "a-1"}, false},
	} {
		must.Equal(t, c.campaign.StuckWithoutError(noon, mine), c.want, name, "stuck")
	}
}
