package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// sums are the numbers of a group that follow from rows and campaigns.
type sums struct{ dead, failed, retrying, heads, released, campaigns, waiting, score int64 }

// recount adds up what the rows and campaigns say, one by one.
func (f *fixture) recount(campaigns map[string]campaign.Campaign) map[string]sums {
	by := map[string]sums{}
	for _, r := range f.everyRow() {
		s, c := by[r.Fingerprint], campaigns[r.CampaignID]
		switch r.Status {
		case event.Pending:
			continue
		case event.Dead:
			s.dead++
		case event.Failed:
			s.failed++
		default:
			s.retrying++
		}
		if c.HeadSeq == r.Seq {
			s.campaigns++
			s.waiting += c.LagEvents()
			s.score += campaign.Score(c.LagEvents(), c.Lag(f.Clock.Now()))
			if r.Status == event.Dead {
				s.heads++
				s.released += c.Counts.Total() - 1
			}
		}
		if r.Fingerprint != "" && r.AttemptCount > 0 {
			by[r.Fingerprint] = s
		}
	}
	return by
}

func (f *fixture) groups() campaign.ErrorGroups {
	return must.Get(f.beside().ErrorGroups(f.Ctx)).Or(f.TB)
}

func TestErrorGroups_addUpRandomHistories(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	f := own(t, storetest.MaxAttempts(3))
	for range size.Of(6, 12, 50) {
		for range 1 + random.IntN(6) {
			f.AppendN(fmt.Sprintf("c-%02d", random.IntN(30)), 1+random.IntN(4))
		}
		claims := f.MustClaim(one, 1000)
		f.check(seed) // while what failed before is being retried
		for _, c := range claims {
			result := outbox.Result{Claim: c, Applied: c.First - 1}
			switch random.IntN(3) {
			case 0:
				result.Applied = c.First
			default:
				result.Failure = storetest.Failure([]string{"boom", "no such table", "seat is taken", "too long"}[random.IntN(4)])
			}
			f.MustSettle(one, result)
		}
		if random.IntN(3) == 0 {
			if dead := f.Number(`select count(*) from campaigns where head_status = 'dead'`); dead > 0 {
				id := storetest.Texts(t, f.JournalDB, `select campaign_id from campaigns where head_status = 'dead' order by campaign_id`)[random.IntN(int(dead))]
				f.MustRequeue(id, f.MustCampaign(id).HeadSeq)
			}
		}
		f.Clock.Advance(time.Duration(random.IntN(400)) * time.Second)
		f.check(seed)
	}
}

func (f *fixture) check(seed uint64) {
	campaigns := map[string]campaign.Campaign{}
	for _, c := range f.AllCampaigns(campaign.CampaignFilter{Limit: 200}) {
		campaigns[c.CampaignID] = c
	}
	all, want := f.groups(), f.recount(campaigns)
	got := map[string]sums{}
	for _, g := range all.Groups {
		got[g.Fingerprint] = sums{g.Dead, g.Failed, g.Retrying, g.Heads, g.Released, g.Campaigns, g.EventsWaiting, g.Score}
		must.Equal(f.TB, int64(len(g.Worst)), min(g.Campaigns, campaign.CausesNamed), "seed", seed, "the campaigns named of", g.Fingerprint)
		for _, c := range g.Worst {
			is := campaigns[c.CampaignID]
			must.Hold(f.TB, is.HeadSeq == c.HeadSeq && is.HeadStatus == c.HeadStatus && is.LagEvents() == c.EventsWaiting && c.EventType == "counted", "seed %d: it says %+v of %+v", seed, c, is)
		}
	}
	must.Equal(f.TB, got, want, "seed", seed, "groups")
	must.Hold(f.TB, slices.IsSortedFunc(all.Groups, campaign.CompareGroups), "seed %d: the groups are not in order", seed)
}

func TestErrorGroups_countRowsByWhatWentWrong(t *testing.T) {
	f := own(t, storetest.MaxAttempts(2))
	f.AppendN("a", 5)
	f.AppendN("b", 2)
	f.Kill("a", "b")
	f.Failing("disk is full", "c", 1)
	all := f.groups()
	must.Need(t, !all.Capped() && len(all.Groups) == 2, "%+v", all)
	g := all.Groups[0]
	must.Hold(t, g.Dead == 2 && g.Failed == 0 && g.Heads == 2 && g.Released == 5 && g.Attempts == 4 && g.Alike == 4 && len(g.Builds) == 1 && len(g.EventTypes) == 1, "the dead: %+v", g)
	must.Hold(t, g.FirstAt != nil && g.LastAt != nil && g.FirstAt.Before(*g.LastAt) && g.Example != "", "seen from %v to %v, such as %q", g.FirstAt, g.LastAt, g.Example)
	g = all.Groups[1]
	must.Hold(t, g.Failed == 1 && g.Dead == 0 && g.Released == 0 && g.Attempts == 1, "a failed one: %+v", g)
}

// A deploy that breaks many campaigns must not hide the errors of others, nor leave them without a first attempt, a build and a version.
func TestErrorGroups_knowEachErrorBesideACommonOne(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Exec(`insert into projection_apply_outbox (campaign_id, seq, event_type, status, attempt_count, next_attempt_at, last_error, fingerprint, enqueued_at, updated_at)
		with recursive n (i) as (select 1 union all select i + 1 from n where i < 12000)
		select 'common-' || i, 1, 'a', 'dead', 1, i, 'common', 'common', 1, 1 from n`)
	f.Failing("rare", "rare", 3)
	f.Exec(`update projection_apply_outbox set status = 'dead', attempt_count = 1, fingerprint = 'behind' where campaign_id = 'rare' and seq = 3`)
	all := f.groups()
	i := slices.IndexFunc(all.Groups, func(g campaign.ErrorGroup) bool { return g.Fingerprint == "behind" })
	must.Hold(t, i >= 1 && all.Groups[i].Dead == 1 && all.Groups[i].Campaigns+all.Groups[i].EventsWaiting <= 0, "an error that blocks nothing itself: %+v", all.Groups)
	must.Hold(t, len(all.Groups) == 3 && all.Groups[0].Fingerprint == "rare" && all.Groups[0].Attempts == 1 && all.Groups[0].FirstAt != nil && len(all.Groups[0].Tried) == 1, "%+v", all)
	for _, g := range all.Groups {
		common := g.Fingerprint == "common"
		must.Hold(t, g.Capped == common && (!common || g.Dead >= 9_000), "%s: %d dead rows, a lower bound: %v", g.Fingerprint, g.Dead, g.Capped)
	}
	must.Hold(t, !all.More && all.Capped(), "more causes: %v, lower bounds: %v", all.More, all.Capped())
}

// An error that rows had which are settled now was not new when the open rows failed.
func TestErrorGroups_knowThatAnErrorHappenedBefore(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	began := f.Clock.Now()
	f.Failing("refused", "a", 1)
	f.MustSkip("a", 1)
	f.PassOver()
	f.Clock.Advance(time.Hour)
	f.Failing("refused", "b", 1)
	f.Failing("another", "c", 1)
	for _, g := range f.groups().Groups {
		before := g.EarlierAt != nil
		must.Hold(t, before == (g.Fingerprint == "refused") && (!before || g.EarlierAt.Sub(began) <= time.Minute), "%s failed before at %v", g.Fingerprint, g.EarlierAt)
	}
}

func TestSummary_oldestRetryableIsInACampaignThatIsServed(t *testing.T) {
	f := own(t)
	f.AppendN("theirs", 1)
	f.Clock.Advance(time.Minute)
	f.AppendN("ours-1", 1)
	_, before := f.Ages()
	must.Equal(t, before.CampaignID, "theirs", "while no instance runs every campaign counts, got")
	must.OK(t, f.Heartbeat(f.Ctx, campaign.InstanceState{ID: "i", StartedAt: f.Clock.Now(), BeatEvery: time.Second, Campaigns: storetest.ScopeOf(t, "ours-*", "mine")}))
	oldest, retryable := f.Ages()
	must.Hold(t, oldest.CampaignID == "theirs" && retryable.CampaignID == "ours-1" && retryable.Seq == 1, "the oldest is %+v, the oldest retryable %+v", oldest, retryable)
	sum := must.Get(f.beside().Summary(f.Ctx)).Or(t)
	stuck, err := f.StuckWithoutError(f.Ctx, sum.Surroundings(), 10)
	must.Hold(t, err == nil && len(stuck) == 1 && stuck[0].CampaignID == "theirs" && sum.Campaigns.Unserved == 1, "stuck are %+v, %v, of %d", stuck, err, sum.Campaigns.Unserved)
}

func TestStuckWithoutError_divergedFirst(t *testing.T) {
	f := own(t, storetest.MaxAttempts(2))
	f.Dies("dead", 2)
	f.AppendN("diverged", 1)
	f.MustSettle(one, outbox.Result{Claim: f.ClaimOne(one, 2), Diverged: "for a test"})
	f.AppendN("due elsewhere paused", 3)
	f.MustPause("paused")
	mine := campaign.Surroundings{Worker: &campaign.WorkerSummary{Running: true, Campaigns: storetest.ScopeOf(t, "d*")}}
	stuck := must.Get(f.StuckWithoutError(f.Ctx, mine, 10)).Or(t)
	must.Equal(t, ids(stuck), []string{"diverged", "elsewhere"}, "stuck")
	must.Equal(t, len(must.Get(f.StuckWithoutError(f.Ctx, mine, 1)).Or(t)), 1)
}

func TestAge_countsFromEventsThatHaveNoRow(t *testing.T) {
	loses := func(where string) func(f *fixture) {
		return func(f *fixture) { f.Exec(`delete from projection_apply_outbox` + where); f.NoClaim(one) }
	}
	type given struct {
		mode campaign.Mode
		then func(f *fixture)
	}
	storetest.Each(t, own, map[string]given{
		"inline mode left it unapplied":       {campaign.ModeInline, func(f *fixture) { f.Works(one, f.MustClaimInline(one, "a"), 2) }},
		"rows lost and counted anew":          {campaign.ModeOutbox, loses("")},
		"the first row lost and counted anew": {campaign.ModeOutbox, loses(" where seq = 3")},
	}, func(t *testing.T, f *fixture, c given) {
		f = f.beside(storetest.InMode(c.mode))
		f.AppendN("a", 2)
		f.Works(one, f.MustClaimInline(one, "a"), 2)
		oldest, retryable := f.Ages()
		must.Hold(t, oldest == (campaign.Oldest{}) && retryable == (campaign.Oldest{}), "all is applied, and the oldest are %+v and %+v", oldest, retryable)
		f.Clock.Advance(time.Minute)
		f.AppendN("a", 1)
		f.Clock.Advance(time.Minute)
		f.AppendN("a", 1)
		c.then(f)
		oldest, retryable = f.Ages()
		must.Hold(t, oldest.CampaignID == "a" && oldest.Seq == 3 && oldest.AgeSeconds == 60 && retryable == oldest, "the oldest are %+v and %+v", oldest, retryable)
		must.Equal(t, f.MustCampaign("a").Lag(f.Clock.Now()), time.Minute, "the campaign lags by")
	})
}

func TestAge_ofWhatIsRetriedIsNotHiddenByWhatIsNot(t *testing.T) {
	storetest.Each(t, own, map[string]func(f *fixture){
		"dead":     func(f *fixture) { f.Kill("stuck") },
		"paused":   func(f *fixture) { f.MustPause("stuck") },
		"diverged": func(f *fixture) { f.Exec(`update campaigns set diverged = 'other events' where campaign_id = 'stuck'`) },
	}, func(t *testing.T, f *fixture, stop func(f *fixture)) {
		f.AppendN("stuck", 3)
		stop(f)
		_, retryable := f.Ages()
		must.Hold(t, retryable == (campaign.Oldest{}), "nothing is retried, and the oldest that is, is %+v", retryable)
		f.Clock.Advance(time.Hour)
		f.AppendN("live", 2)
		f.Clock.Advance(time.Minute)
		oldest, retryable := f.Ages()
		must.Hold(t, oldest.CampaignID == "stuck" && oldest.AgeSeconds >= 3600 && retryable.CampaignID == "live" && retryable.Seq == 1 && retryable.AgeSeconds == 60, "the oldest are %+v and %+v", oldest, retryable)
	})
}

// A worker that waits for the next attempt is not one that has stopped: an event is due when it may be claimed.
func TestSummary_saysSinceWhenAnEventIsDue(t *testing.T) {
	f := own(t)
	due := func(want *time.Time) {
		s := must.Get(f.Beside(storetest.InMode(f.Mode())).Summary(f.Ctx)).Or(t)
		must.Hold(t, (s.DueSince == nil) == (want == nil) && (want == nil || s.DueSince.Equal(*want)), "due since %v, want %v", s.DueSince, want)
	}
	due(nil)
	appended := f.Clock.Now()
	f.AppendN("a", 2)
	f.Clock.Advance(time.Minute)
	due(&appended)
	f.Fail("no such thing", "a")
	next := f.Clock.Now().Add(time.Second)
	due(&next)
	f.Clock.Advance(5 * time.Minute)
	due(&next)
	f.MustPause("a")
	due(nil)
}

// lowerSequences leaves all sequences of both databases behind, as a copy of the tables does.
const lowerSequences = `select setval(cast(c.oid as regclass), 1, false) from pg_class as c where c.relkind = 'S' and c.relnamespace in (cast('journal' as regnamespace), cast('projections' as regnamespace))`

func TestPostgresAppend_drawsNoPositionBelowTheHead(t *testing.T) {
	f := own(t)
	f.AppendN("a", 8)
	mustFollow := func(s *store.Store, campaign, what string) {
		head := must.Get(f.Position(f.Ctx)).Or(t)
		got, err := s.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Event(campaign, "counted"), storetest.Event(campaign, "counted")}})
		must.Hold(t, err == nil && got[0].Position > head && got[1].Position > got[0].Position, "%s: appended %+v (%v), want positions above %d", what, got, err, head)
	}
	f.Exec(lowerSequences)
	mustFollow(f.Store, "b", "onto numbers that are taken")
	f.Exec(`select setval('journal.events_position_seq', 100)`)
	f.AppendN("a", 1)
	f.Exec(`select setval('journal.events_position_seq', 50)`)
	mustFollow(f.Store, "c", "onto numbers that are free")
	f.Exec(lowerSequences)
	mustFollow(f.Beside().Store, "d", "at the start")
}

func TestPostgresExamine_namesTheStatementWhereTheUserMayNot(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	poor := storetest.Role(t, "reader_of_sequences")
	for _, schema := range []string{"journal", "projections"} {
		for _, grant := range []string{`grant usage on schema ` + schema, `grant all on all tables in schema ` + schema, `grant select on all sequences in schema ` + schema} {
			f.Exec(grant + ` to ` + poor)
		}
	}
	t.Cleanup(func() { f.Exec(`drop owned by ` + poor) })
	f.Exec(lowerSequences)
	s := must.Get(store.Open(f.Ctx, store.Options{Journal: asUser(f.Pair.Journal, poor), Projections: asUser(f.Pair.Projections, poor)})).Or(t)
	defer s.Close()
	err := s.Examine(f.Ctx)
	must.Hold(t, errors.Is(err, event.ErrSetup) && strings.Contains(err.Error(), "select setval('journal.events_position_seq', 3)"), "examine: got error %v", err)
}

// What a note changes is in the scenarios of the command.
func TestNoteGroup_isPinnedAndTakenAway(t *testing.T) {
	f := own(t)
	f.Failing("boom", "a", 1)
	for _, text := range []string{"waits for the fix of Monday", ""} {
		note := must.Get(f.SetGroupNote(f.Ctx, ana("known"), "boom", text)).Or(t)
		pinned := must.Get(f.ErrorGroups(f.Ctx)).Or(t).Groups[0].Note
		must.Hold(t, (note != nil) == (text != "") && (pinned != nil) == (text != "") && (pinned == nil || pinned.Note == text && note.By == "ana"), "of %q there is %+v, pinned is %+v", text, note, pinned)
	}
	refused(t, storetest.No(f.SetGroupNote(f.Ctx, ana(""), "boom", string(make([]byte, 2001)))), event.ErrInvalid, "2001 bytes")
	refused(t, storetest.No(f.SetGroupNote(f.Ctx, ana(""), "", "x")), event.ErrInvalid, "fingerprint")
	refused(t, storetest.No(f.SetGroupNote(f.Ctx, ana(""), "never seen", "")), event.ErrNotFound, `no row failed with the fingerprint "never seen"`)
	// A note changes no row, so a refusal does not mention it.
	r := refused(t, storetest.No(f.RequeueRow(f.Ctx, ana(""), "a", 1)), event.ErrConflict, "not dead")
	must.Hold(t, len(r.Detail) <= 80, "the refusal tells of the note: %s", r.Detail)
}
