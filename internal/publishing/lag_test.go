package publishing_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

var (
	archive = operator.SubscriptionName{Topic: "scenes", Publisher: "archive"}
	scenes  = subscription.Match{EventTypes: []string{"scene.*"}}
)

// newSubscription inserts the row of a subscription at a position, as a server that starts with it
// does.
func (f *fixture) newSubscription(name operator.SubscriptionName, match subscription.Match, position int64) operator.SubscriptionName {
	selects := must.Get(json.Marshal(match)).Or(f.TB)
	f.Exec(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at)
values ($1, $2, 'log:', $3, 10, $4, 1, 1)`, name.Topic, name.Publisher, string(selects), position)
	return name
}

func (f *fixture) heldBy(name operator.SubscriptionName, owner string, epoch int64) {
	f.Exec(`update publisher_progress set lease_owner = $3, lease_epoch = $4, lease_expires_at = $5 where topic = $1 and publisher = $2`,
		name.Topic, name.Publisher, owner, epoch, f.Clock.Now().Add(lease).UnixMicro())
}

func (f *fixture) failing(name operator.SubscriptionName, position int64, kind operator.DeliveryErrorKind) {
	f.Exec(`
update publisher_progress
set status = 'failed', error_count = 10, error_kind = $3, last_error = 'status 500', last_error_at = 1, error_position = $4, retry_at = $5
where topic = $1 and publisher = $2`, name.Topic, name.Publisher, string(kind), position, f.Clock.Now().Add(time.Minute).UnixMicro())
}

func (f *fixture) publisher(name operator.SubscriptionName) subscription.Publisher {
	return must.Get(f.progress.Publisher(f.Ctx, name)).Or(f.TB)
}

// types appends one event of each type to a campaign, a second apart.
func (f *fixture) types(campaign string, all ...string) *fixture {
	for _, one := range all {
		f.MustAppend(storetest.Event(campaign, one))
		f.Clock.Advance(time.Second)
	}
	return f
}

func TestPublishers_areInTheOrderOfTheirNamesWithTheirLags(t *testing.T) {
	f := own(t)
	if all, err := f.progress.Publishers(f.Ctx); err != nil || all == nil || len(all) != 0 {
		t.Errorf("without any: %v, %v", all, err)
	}
	f.types("c", "scene.a", "x", "x", "scene.b", "x") // recorded at 0, 1, 2, 3, 4 s; now 5 s
	f.newSubscription(operator.SubscriptionName{Topic: "z", Publisher: "a"}, everyEvent, 3)
	f.newSubscription(operator.SubscriptionName{Topic: "scenes", Publisher: "late"}, scenes, 0)
	f.newSubscription(operator.SubscriptionName{Topic: "scenes", Publisher: "near"}, scenes, 1)
	f.newSubscription(operator.SubscriptionName{Topic: "scenes", Publisher: "scanned"}, scenes, 4)
	f.newSubscription(operator.SubscriptionName{Topic: "tags", Publisher: "a"}, subscription.Match{RequiredTags: []string{"actor_id"}}, 0)
	f.newSubscription(operator.SubscriptionName{Topic: "a", Publisher: "head"}, everyEvent, 5)
	all := must.Get(f.beside().progress.Publishers(f.Ctx)).Or(t)
	var got []string
	for _, p := range all {
		got = append(got, fmt.Sprintf("%s %d %v %v %v of %d", p, p.LagEvents, p.LagCapped, p.LagSeconds, p.Lag(), p.HeadPosition))
	}
	want := []string{
		"a/head 0 false 0 none of 5",
		"scenes/late 2 false 5 2 events, 5 s of 5",
		"scenes/near 1 false 2 1 event, 2 s of 5",
		"scenes/scanned 0 false 0 none of 5",
		"tags/a 0 false 0 none of 5",
		"z/a 2 false 2 2 events, 2 s of 5",
	}
	must.Equal(t, got, want, "publishers")
	p := f.publisher(operator.SubscriptionName{Topic: "scenes", Publisher: "near"})
	must.Hold(t, p.LagEvents == 1 && p.LagSeconds == 2, "alone it is %+v", p)
	refused(t, storetest.No(f.progress.Publisher(f.Ctx, archive)), event.ErrNotFound, "scenes/archive", "configuration")
}

func TestPublisher_tellsOfTheEventInTheWay(t *testing.T) {
	f := own(t)
	f.types("c", "scene.a", "scene.b").newSubscription(archive, scenes, 0)
	f.failing(archive, 2, operator.EventError)
	f.Exec(`update publisher_progress set paused_at = 7, paused_by = 'ben', paused_reason = 'stop', status = 'paused', delivered = 4, delivered_position = 1`)
	p := f.publisher(archive)
	must.Equal(t, p.ErrorEvent, (&event.EventRef{Position: 2, CampaignID: "c", Seq: 2, EventType: "scene.b"}), "the event in the way")
	must.Hold(t, p.Status == subscription.PublisherPaused && p.Paused != nil && p.Paused.By == "ben" && p.LastError == "status 500" && p.Delivered == 4 && p.DeliveredPosition == 1 && p.Lease == nil, "it is %+v", p)
}

// journalOf fills the journal directly, as fast as possible: n events of which every nth is of
// scenes, recorded a second apart.
func (f *fixture) journalOf(n, nth int) {
	f.Exec(`
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
with recursive numbers(i) as (select cast(1 as bigint) union all select i + 1 from numbers where i < cast($1 as bigint))
select 'bulk', i, 'e-' || i, case when i % cast($2 as bigint) = 0 then 'scene.x' else 'other' end, i * 1000000, cast($3 as bigint) + i * 1000000,
  'participant', 'p-1', 'scene', 's-1', 'x', 'r', 'c', '', '{"wallet_id":"w-1"}', '{}', '{"text":"`+strings.Repeat("x", 300)+`"}', 'h' || i, 'c' || i
from numbers`, n, nth, f.Clock.Now().UnixMicro())
}

// The events examined for a lag are limited, and the result says so.
func TestPublishers_lagIsCappedAndSaysWhenItIsNotKnown(t *testing.T) {
	f := own(t)
	f.journalOf(1010, 500)
	rare := subscription.Match{EventTypes: []string{"none"}}
	for _, c := range []struct {
		publisher string
		match     subscription.Match
		position  int64
		want      string
		unknown   bool
	}{
		{"all", everyEvent, 0, "1000 true at least 1,000 events", false},
		{"all-9", everyEvent, 9, "1000 true at least 1,000 events", false},
		{"all-10", everyEvent, 10, "1000 false 1,000 events", false},
		{"some", scenes, 0, "2 true at least 2 events", false},
		{"some-10", scenes, 10, "2 false 2 events", false},
		{"none", rare, 0, "0 true not known", true},
		{"none-10", rare, 10, "0 false none", false},
	} {
		p := f.publisher(f.newSubscription(operator.SubscriptionName{Topic: "t", Publisher: c.publisher}, c.match, c.position))
		text, _, _ := strings.Cut(p.Lag(), ", ")
		got := fmt.Sprintf("%d %v %s", p.LagEvents, p.LagCapped, text)
		must.Hold(t, got == c.want && p.LagUnknown() == c.unknown, "%s is %s, want %s", c.publisher, got, c.want)
	}
	for _, p := range must.Get(f.progress.Publishers(f.Ctx)).Or(t) {
		must.Equal(t, f.publisher(p.SubscriptionName), p, "together", "alone")
	}
	f.sample()
	points := f.publisherHistory(operator.SubscriptionName{Topic: "t", Publisher: "none"}, samples.RangeHour)
	must.Hold(t, len(points) == 2 && points[0].LagCapped && points[0].LagEvents == 0 && points[1].LagCapped, "the history has %+v", points)
}

// The lags of twenty subscriptions at distant positions cost no more than those of fewer.
func TestPublishers_manyThatLagFarApartCostNoMoreThanSome(t *testing.T) {
	f := own(t)
	f.journalOf(6000, 10)
	for i := range 20 {
		f.newSubscription(operator.SubscriptionName{Topic: "scenes", Publisher: fmt.Sprintf("p-%02d", i)}, scenes, int64(i)*290)
	}
	all := must.Get(f.progress.Publishers(f.Ctx)).Or(t)
	for i, p := range all {
		must.Hold(t, (p.LagCapped || p.Position+125 >= p.HeadPosition) && p.LagEvents != 0, "publisher %d: %+v", i, p)
	}
	far, near := all[0].LagEvents, all[19].LagEvents
	must.Hold(t, far == 12 && near == 12, "the first has %d and the last %d events, want those of 125 positions each", far, near)
}

func (f *fixture) publisherHistory(name operator.SubscriptionName, over samples.RangeName) []publishing.PublisherPoint {
	return must.Get(f.progress.History(f.Ctx, name, samples.Range{Name: over})).Or(f.TB).Points
}

func TestSample_ofPublishersOnlyWhenOneChanged(t *testing.T) {
	f := own(t)
	count := func() int64 { return f.Number(`select count(*) from publisher_samples`) }
	other := f.newSubscription(operator.SubscriptionName{Topic: "other", Publisher: "a"}, subscription.Match{EventTypes: []string{"none"}}, 0)
	f.newSubscription(archive, scenes, 0)
	f.types("c", "scene.a", "scene.b").Drain()
	must.OK(t, f.Heartbeat(f.Ctx, campaign.InstanceState{ID: "w", StartedAt: f.Clock.Now()}))
	f.sample()
	f.sample()
	must.Equal(t, count(), 2, "samples of a minute")
	f.Clock.Advance(time.Minute)
	f.Unchanged(f.sample)
	f.Clock.Advance(time.Minute)
	f.Exec(`update publisher_progress set position = 1, delivered = 120, error_count = 3 where topic = 'scenes'`)
	must.OK(t, f.Sample(f.Ctx))
	must.Equal(t, count(), 3, "samples")
	f.Exec(`update publisher_progress set last_error_at = $1, error_count = 5 where topic = 'scenes'`, f.Clock.Now().Add(time.Hour).UnixMicro())
	if p, err := f.beside().progress.Publisher(f.Ctx, archive); err != nil || p.FailingSince == nil || !p.FailingSince.Equal(f.Clock.Now().Truncate(time.Minute)) {
		t.Errorf("it has failed since %v, want since the first sample with an error (%v)", p.FailingSince, err)
	}
	f.Exec(`update publisher_progress set last_published_at = $1 where topic = 'scenes'`, f.Clock.Now().Add(time.Second).UnixMicro())
	if p, err := f.beside().progress.Publisher(f.Ctx, archive); err != nil || p.FailingSince != nil {
		t.Errorf("errors after a delivery began with an earlier sample, at %v (%v)", p.FailingSince, err)
	}
	f.Exec(`update publisher_progress set error_count = 3, delivered = 130 where topic = 'scenes'`)
	points := f.publisherHistory(archive, samples.RangeHour)
	must.Need(t, len(points) == 4, "%d points: %+v", len(points), points)
	first, last, running := points[1], points[2], points[3]
	must.Hold(t, running.DeliveredInStep == 10 && running.Delivered == 130 && running.LagEvents == 1, "in the running minute: %+v", running)
	must.Hold(t, first.LagEvents == 2 && first.LagSeconds == 60 && first.Delivered == 0 && first.PerSecond == 0, "in between: %+v", first)
	must.Hold(t, last.LagEvents == 1 && last.Delivered == 120 && last.PerSecond == 2 && last.ErrorsInARow == 3 && last.LagSeconds == 119, "at the end: %+v", last)
	points = f.publisherHistory(other, samples.RangeDay)
	must.Hold(t, len(points) == 0 || points[0].LagEvents == 0, "of the other: %+v", points)
	refused(t, storetest.No(f.progress.History(f.Ctx, operator.SubscriptionName{Topic: "x", Publisher: "y"}, samples.Range{})), event.ErrNotFound, "x/y")
	f.Clock.Advance(9 * 24 * time.Hour)
	f.Exec(`update publisher_progress set delivered = 121`)
	f.sample()
	must.Equal(t, count(), 2, "samples")
}

func TestInstances_holdPublishers(t *testing.T) {
	f := own(t)
	beat := campaign.InstanceState{ID: "worker-1", Host: "h", PID: 7, Version: "v1", Mode: campaign.ModeOutbox, StartedAt: storetest.Began, BeatEvery: 2 * time.Second}
	must.OK(t, f.Heartbeat(f.Ctx, beat))
	for i, owner := range []string{"worker-1", "worker-1", "stranger", ""} {
		name := f.newSubscription(operator.SubscriptionName{Topic: "t", Publisher: fmt.Sprint("p", i)}, everyEvent, 0)
		f.heldBy(name, owner, 1)
	}
	all := f.FreshInstances()
	i := slices.IndexFunc(all, func(i campaign.InstanceState) bool { return i.ID == "worker-1" })
	must.Hold(t, len(all) == 2 && slices.Equal(all[i].Leases.Publishers, []string{"t/p0", "t/p1"}) && strings.HasSuffix(all[i].Why(f.Clock.Now()), "; 2 publishers leased"), "instances %+v", all)
	f.AppendN("a", 1)
	f.MustClaim(outbox.Worker{ID: "worker-1"}, 1)
	all = f.FreshInstances()
	i = slices.IndexFunc(all, func(i campaign.InstanceState) bool { return i.ID == "worker-1" })
	why := all[i].Why(f.Clock.Now())
	must.Hold(t, strings.HasSuffix(why, "; 1 campaign and 2 publishers leased"), "it is %q", why)
	f.Clock.Advance(lease)
	for _, i := range f.FreshInstances() {
		must.Hold(t, len(i.Leases.Publishers) <= 0, "%s holds %v after its leases", i.ID, i.Leases.Publishers)
	}
}

func TestPublishers_sayThatTheirProcessWasKilled(t *testing.T) {
	f := own(t)
	must.OK(t, f.Heartbeat(f.Ctx, storetest.Killed(t, "killed", storetest.Began)))
	archive := f.newSubscription(operator.SubscriptionName{Topic: "t", Publisher: "archive"}, everyEvent, 0)
	f.heldBy(archive, "killed", 1)
	f.Exec(`update publisher_progress set events_per_second = 5, next_poll_at = $1, healthy = 1, hanging_since = 1, updated_at = $2`, f.Clock.Now().Add(lease).UnixMicro(), f.Clock.Now().UnixMicro())
	f.Clock.Advance(5 * time.Second)
	list := must.Get(f.progress.Publishers(f.Ctx)).Or(t)
	for _, p := range []subscription.Publisher{list[0], f.publisher(archive)} {
		must.Hold(t, p.StateAsRead == subscription.PublisherIsNotHeld && p.State(f.Clock.Now()) == subscription.PublisherIsNotHeld && strings.Contains(p.WhyAsRead, "killed crashed or was killed: last seen at work 5 s ago"), "it is %s: %s", p.StateAsRead, p.WhyAsRead)
		must.Hold(t, p.EventsPerSecond == 0 && p.NextPollAt == nil && p.Healthy == nil && p.HangingSince == nil, "of a process that is gone: %+v", p)
		must.Hold(t, p.Lease != nil, "its lease is not shown")
	}
}

func toPosition(n int64) subscription.SeekTarget { return subscription.SeekTarget{Position: &n} }

// sixScenes is a subscription at position 3 of a journal with six events of which 1, 3, 4 and 6 are
// of its topic, recorded at 0 to 5 s.
func sixScenes(f *fixture) {
	f.types("c", "scene.a", "x", "scene.b", "scene.c", "x", "scene.d").newSubscription(archive, scenes, 3)
}

func TestSeek_countsWhatItRepeatsOrSkips(t *testing.T) {
	f := own(t)
	sixScenes(f)
	for name, c := range map[string]struct {
		target             subscription.SeekTarget
		to, repeats, skips int64
	}{
		"beginning":               {subscription.SeekTarget{Beginning: true}, 0, 2, 0},
		"head":                    {subscription.SeekTarget{Head: true}, 6, 0, 2},
		"position back":           {toPosition(1), 1, 1, 0},
		"position forward":        {toPosition(5), 5, 0, 1},
		"over nothing":            {toPosition(2), 2, 1, 0},
		"time of the first":       {subscription.SeekTarget{Time: storetest.Began}, 0, 2, 0},
		"long before":             {subscription.SeekTarget{Time: storetest.Began.Add(-time.Hour)}, 0, 2, 0},
		"time of an event":        {subscription.SeekTarget{Time: storetest.Began.Add(time.Second)}, 1, 1, 0},
		"time between two":        {subscription.SeekTarget{Time: storetest.Began.Add(3500 * time.Millisecond)}, 4, 0, 1},
		"time of the last":        {subscription.SeekTarget{Time: storetest.Began.Add(5 * time.Second)}, 5, 0, 1},
		"time after the last one": {subscription.SeekTarget{Time: storetest.Began.Add(time.Hour)}, 6, 0, 2},
	} {
		sub := f.newSubscription(operator.SubscriptionName{Topic: "scenes", Publisher: strings.ReplaceAll(name, " ", "-")}, scenes, 3)
		f.heldBy(sub, "worker-1", 7)
		want := operator.Seek{SubscriptionName: sub, From: 3, To: c.to, Repeats: c.repeats, Skips: c.skips}
		f.Unchanged(func() {
			must.Equal(t, must.Get(f.progress.PreviewSeek(f.Ctx, sub, c.target)).Or(t), want, name, "the preview")
		})
		o := script("moved")
		o.Confirm = operator.ActionPublisherSeek.Phrase(operator.Reach{Seek: want})
		must.Equal(t, must.Get(f.progress.Seek(f.Ctx, o, sub, c.target, &want)).Or(t), want, name, "the seek")
		f.isNow(sub, fmt.Sprintf(`active at %d/0 errors 0 "" at 0 retry false stopped 0 acts 1 lease "" 8 paused ""`, c.to))
	}
}

func TestSeek_refusesWhereItCannotGo(t *testing.T) {
	f := own(t)
	sixScenes(f)
	f.Unchanged(func() {
		for _, c := range []struct {
			target   subscription.SeekTarget
			kind     error
			sentence string
		}{
			{toPosition(7), event.ErrInvalid, "position 7 is beyond the head of the journal, which is at 6"},
			{toPosition(-1), event.ErrInvalid, "not -1"},
			{subscription.SeekTarget{}, event.ErrInvalid, "say where"},
			{toPosition(3), event.ErrConflict, "is already at position 3"},
		} {
			refused(t, storetest.No(f.progress.Seek(f.Ctx, script("x"), archive, c.target, nil)), c.kind, c.sentence)
		}
		refused(t, storetest.No(f.beside(storetest.ReadOnly).progress.Seek(f.Ctx, script("x"), archive, toPosition(1), nil)), event.ErrReadOnly)
	})
	f.Exec(`update publisher_progress set position = 9`)
	must.Equal(t, must.Get(f.progress.PreviewSeek(f.Ctx, archive, subscription.SeekTarget{Head: true})).Or(t).To, 9, "a pair that has gone on since the head was read goes back")
	empty := open(t)
	empty.newSubscription(archive, scenes, 0)
	must.Equal(t, must.Get(empty.progress.PreviewSeek(f.Ctx, archive, subscription.SeekTarget{Head: true})).Or(t).To, 0, "in an empty journal")
}

func TestSeek_asksBeforeItSkips(t *testing.T) {
	f := own(t)
	sixScenes(f)
	head := subscription.SeekTarget{Head: true}
	f.Unchanged(func() {
		_, err := f.progress.Seek(f.Ctx, script(" "), archive, head, nil)
		must.Equal(t, refused(t, err, event.ErrInvalid, "skips 2 events", "a reason is required").Field, "reason", "the refusal is about")
		for _, via := range []string{"page", "api", "cli"} {
			o := ana("they are old")
			o.By.Via, o.Confirm = via, "skip over"
			r := refused(t, storetest.No(f.progress.Seek(f.Ctx, o, archive, head, nil)), event.ErrInvalid, "to confirm it, type: skip 2 events")
			must.Hold(t, r.Field == "confirm" && r.Confirm == "skip 2 events", "the refusal is about %q and wants %q", r.Field, r.Confirm)
		}
		_, err = f.progress.Seek(f.Ctx, script("x"), archive, subscription.SeekTarget{Beginning: true}, &operator.Seek{Repeats: -200})
		refused(t, err, event.ErrConflict, "has changed since this page was loaded", "would now repeat 2 and skip 0 events")
	})
	o := ana("they are old")
	o.Confirm = " skip 1 events " // another was appended meanwhile
	must.Equal(t, must.Get(f.progress.Seek(f.Ctx, o, archive, head, nil)).Or(t).Skips, 2)
	// Moving back requires no confirmation.
	must.Equal(t, must.Get(f.progress.Seek(f.Ctx, ana(""), archive, subscription.SeekTarget{Beginning: true}, nil)).Or(t).Repeats, 4)
}

func TestSeek_keepsAPauseAndForgetsTheErrorOfAnotherEvent(t *testing.T) {
	f := own(t)
	sixScenes(f)
	f.failing(archive, 4, operator.EventError)
	must.Get(f.progress.Pause(f.Ctx, ana(""), archive)).Or(t)
	o := script("x")
	o.Confirm = "skip 1 events"
	must.Get(f.progress.Seek(f.Ctx, o, archive, toPosition(4), nil)).Or(t)
	f.isNow(archive, `paused at 4/0 errors 0 "" at 0 retry false stopped 0 acts 2 lease "" 1 paused "ana"`)
}

// The holder moves the position under its epoch, so that a batch in flight during a seek cannot set it back.
func TestSeek_isNotUndoneByABatchInFlight(t *testing.T) {
	f := own(t)
	sixScenes(f)
	held := f.claimSubscription("worker-1", archive)
	seen, err := f.progress.PreviewSeek(f.Ctx, archive, toPosition(1))
	if err == nil {
		_, err = f.progress.Advance(f.Ctx, &held, delivered(4))
	}
	must.OK(t, err)
	seek, err := f.progress.Seek(f.Ctx, script("x"), archive, toPosition(1), &seen)
	must.Need(t, err == nil && seek.From == 4 && seek.Repeats == 2, "%+v, %v", seek, err)
	lost(t, "of the holder of before", storetest.No(f.progress.Advance(f.Ctx, &held, delivered(6))))
	must.Equal(t, f.publisher(archive).Position, 1, "it stands at")
}

func TestSeek_countsNoFurtherThanACap(t *testing.T) {
	f := own(t)
	f.journalOf(10_010, 5000)
	f.newSubscription(archive, scenes, 0)
	other := f.newSubscription(operator.SubscriptionName{Topic: "all", Publisher: "a"}, everyEvent, 5)
	o := ana("old")
	o.Confirm = "skip 2 events"
	refused(t, storetest.No(f.progress.Seek(f.Ctx, o, archive, subscription.SeekTarget{Head: true}, nil)), event.ErrInvalid, "at least 2 events", "type: skip over 2 events")
	seek, err := f.progress.PreviewSeek(f.Ctx, archive, toPosition(10_000))
	must.Hold(t, err == nil && !seek.Capped && seek.Skips == 2, "to the cap: %+v, %v", seek, err)
	seek, err = f.progress.PreviewSeek(f.Ctx, other, subscription.SeekTarget{Head: true})
	must.Hold(t, err == nil && seek.Capped && seek.Skips == 10_000, "of all: %+v, %v", seek, err)
	o.Confirm = operator.ActionPublisherSeek.Phrase(operator.Reach{Seek: seek})
	must.Get(f.progress.Seek(f.Ctx, o, other, subscription.SeekTarget{Head: true}, &seek)).Or(t)
	o.Confirm = "skip over 2 events"
	must.Get(f.progress.Seek(f.Ctx, o, archive, subscription.SeekTarget{Head: true}, nil)).Or(t)
}

// An append that has allocated its position and not committed is neither skipped silently nor left
// uncounted: the seek waits, and gives up if it takes long.
func TestPostgresSeek_waitsForAppendsUnderWay(t *testing.T) {
	f := own(t)
	sixScenes(f)
	conn := storetest.Connect(t, f.Pair.Journal)
	must.Get(conn.PgConn().Exec(f.Ctx, f.Journal().BeginText(sqldb.BeginAppend)).ReadAll()).Or(t)
	storetest.Run(t, conn, `
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
values ('slow', 1, '1', 'scene.slow', 1, 1, '', '', '', '', '', '', '', '', '{}', '{}', '{}', '', '')`)
	f.AppendN("fast", 1) // its position is after that of the slow one
	f.Unchanged(func() {
		_, err := f.progress.Seek(f.Ctx, script("x"), archive, subscription.SeekTarget{Head: true}, nil)
		must.Hold(t, errors.Is(err, event.ErrBusy), "beside an append in progress: %v", err)
	})
	storetest.Run(t, conn, `commit`)
	o := script("x")
	o.Confirm = "skip 3 events"
	seek, err := f.progress.Seek(f.Ctx, o, archive, subscription.SeekTarget{Head: true}, nil)
	must.Hold(t, err == nil && seek.Skips == 3 && strings.Contains(fmt.Sprint(seek.To), "8"), "after it: %+v, %v", seek, err)
}

func TestPublisherPoints_keepWhatStoodBetweenSamples(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 21, 7, 30, 0, 0, time.UTC)
	w := samples.Range{}.Window(end)
	pointsOf := func(created time.Time, s ...publishing.PublisherSample) []publishing.PublisherPoint {
		return publishing.PublisherPoints(s, w, []samples.Interval{{From: w.From, To: w.To}}, created)
	}
	points := pointsOf(end.Add(-40*24*time.Hour),
		publishing.PublisherSample{At: end.Add(-10 * time.Minute), Delivered: 10, LagEvents: 3, RecordedAt: end.Add(-11 * time.Minute)},
		publishing.PublisherSample{At: end.Add(-2 * time.Minute), Delivered: 130, Errors: 2})
	must.Need(t, len(points) == 12, "%d points, want those since the first sample", len(points))
	p := points[5]
	must.Hold(t, p.LagEvents == 3 && p.LagSeconds == 6*60 && p.PerSecond == 0, "in between: %+v", p)
	p = points[8]
	must.Hold(t, p.PerSecond == 2 && p.DeliveredInStep == 120 && p.ErrorsInARow == 2 && p.LagSeconds == 0, "at the second sample: %+v", p)
	must.Equal(t, points[0].DeliveredInStep, 0, "at the first sample of an old subscription")
	points = pointsOf(end.Add(-10*time.Minute-40*time.Second),
		publishing.PublisherSample{At: end.Add(-10 * time.Minute), Delivered: 4000}, publishing.PublisherSample{At: end.Add(-9 * time.Minute), Delivered: 4010})
	for i, p := range points { // a new subscription: its first deliveries count
		must.Equal(t, p.DeliveredInStep, append([]int64{4000, 10}, make([]int64, len(points)-2)...)[i], "delivered in step", i)
	}
}
