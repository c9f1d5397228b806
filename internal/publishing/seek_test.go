package publishing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func toPosition(n int64) outbox.SeekTarget { return outbox.SeekTarget{Position: &n} }

// sixScenes is a subscription at position 3 of a journal with six events of which 1, 3, 4 and 6 are
// of its topic, recorded at 0 to 5 s.
func sixScenes(f *fixture) {
	f.types("c", "scene.a", "x", "scene.b", "scene.c", "x", "scene.d")
	f.newSubscription(archive, scenes, 3)
}

func TestSeek_countsWhatItRepeatsOrSkips(t *testing.T) {
	t.Parallel()
	f := open(t)
	sixScenes(f)
	for name, c := range map[string]struct {
		target             outbox.SeekTarget
		to, repeats, skips int64
	}{
		"beginning":               {outbox.SeekTarget{Beginning: true}, 0, 2, 0},
		"head":                    {outbox.SeekTarget{Head: true}, 6, 0, 2},
		"position back":           {toPosition(1), 1, 1, 0},
		"position forward":        {toPosition(5), 5, 0, 1},
		"over nothing":            {toPosition(2), 2, 1, 0},
		"time of the first":       {outbox.SeekTarget{Time: storetest.Began}, 0, 2, 0},
		"long before":             {outbox.SeekTarget{Time: storetest.Began.Add(-time.Hour)}, 0, 2, 0},
		"time of an event":        {outbox.SeekTarget{Time: storetest.Began.Add(time.Second)}, 1, 1, 0},
		"time between two":        {outbox.SeekTarget{Time: storetest.Began.Add(3500 * time.Millisecond)}, 4, 0, 1},
		"time of the last":        {outbox.SeekTarget{Time: storetest.Began.Add(5 * time.Second)}, 5, 0, 1},
		"time after the last one": {outbox.SeekTarget{Time: storetest.Began.Add(time.Hour)}, 6, 0, 2},
	} {
		sub := f.newSubscription(outbox.SubscriptionName{Topic: "scenes", Publisher: strings.ReplaceAll(name, " ", "-")}, scenes, 3)
		f.heldBy(sub, "worker-1", 7)
		want := outbox.Seek{SubscriptionName: sub, From: 3, To: c.to, Repeats: c.repeats, Skips: c.skips}
		f.Unchanged(func() {
			must.Equal(t, must.Get(f.progress.PreviewSeek(f.Ctx, sub, c.target)).Or(t), want, name, "the preview")
		})
		o := script("moved")
		o.Confirm = outbox.ActionPublisherSeek.Phrase(outbox.Reach{Seek: want})
		must.Equal(t, must.Get(f.progress.Seek(f.Ctx, o, sub, c.target, &want)).Or(t), want, name, "the seek")
		f.isNow(sub, fmt.Sprintf(`active at %d/0 errors 0 "" at 0 retry false stopped 0 acts 1 lease "" 8 paused ""`, c.to))
	}
}

func TestSeek_refusesWhereItCannotGo(t *testing.T) {
	t.Parallel()
	f := open(t)
	sixScenes(f)
	f.Unchanged(func() {
		for _, c := range []struct {
			target   outbox.SeekTarget
			kind     error
			sentence string
		}{
			{toPosition(7), outbox.ErrInvalid, "position 7 is beyond the head of the journal, which is at 6"},
			{toPosition(-1), outbox.ErrInvalid, "not -1"},
			{outbox.SeekTarget{}, outbox.ErrInvalid, "say where"},
			{toPosition(3), outbox.ErrConflict, "is already at position 3"},
		} {
			_, err := f.progress.Seek(f.Ctx, script("x"), archive, c.target, nil)
			refused(t, err, c.kind, c.sentence)
		}
		_, err := f.beside(storetest.ReadOnly).progress.Seek(f.Ctx, script("x"), archive, toPosition(1), nil)
		refused(t, err, outbox.ErrReadOnly)
	})
	f.Exec(`update publisher_progress set position = 9`)
	must.Equal(t, must.Get(f.progress.PreviewSeek(f.Ctx, archive, outbox.SeekTarget{Head: true})).Or(t).To, 9, "a pair that has gone on since the head was read goes back")
	empty := open(t)
	empty.newSubscription(archive, scenes, 0)
	must.Equal(t, must.Get(empty.progress.PreviewSeek(f.Ctx, archive, outbox.SeekTarget{Head: true})).Or(t).To, 0, "in an empty journal")
}

func TestSeek_asksBeforeItSkips(t *testing.T) {
	t.Parallel()
	f := open(t)
	sixScenes(f)
	head := outbox.SeekTarget{Head: true}
	f.Unchanged(func() {
		_, err := f.progress.Seek(f.Ctx, script(" "), archive, head, nil)
		must.Equal(t, refused(t, err, outbox.ErrInvalid, "skips 2 events", "a reason is required").Field, "reason", "the refusal is about")
		for _, typed := range []string{"", "skip", "skip 200 event", "skip 3 events or so", "release 2 rows", "skip over"} {
			for _, via := range []string{"page", "api", "cli"} {
				o := ana("they are old")
				o.By.Via, o.Confirm = via, typed
				_, err := f.progress.Seek(f.Ctx, o, archive, head, nil)
				r := refused(t, err, outbox.ErrInvalid, "to confirm it, type: skip 2 events")
				must.Hold(t, r.Field == "confirm" && r.Confirm == "skip 2 events", "the refusal is about %q and wants %q", r.Field, r.Confirm)
			}
		}
		_, err = f.progress.Seek(f.Ctx, script("x"), archive, outbox.SeekTarget{Beginning: true}, &outbox.Seek{Repeats: -200})
		refused(t, err, outbox.ErrConflict, "has changed since this page was loaded", "would now repeat 2 and skip 0 events")
	})
	o := ana("they are old")
	o.Confirm = " skip 1 events " // another was appended meanwhile
	must.Equal(t, must.Get(f.progress.Seek(f.Ctx, o, archive, head, nil)).Or(t).Skips, 2)
	// Moving back requires no confirmation.
	must.Equal(t, must.Get(f.progress.Seek(f.Ctx, ana(""), archive, outbox.SeekTarget{Beginning: true}, nil)).Or(t).Repeats, 4)
}

func TestSeek_keepsAPauseAndForgetsTheErrorOfAnotherEvent(t *testing.T) {
	t.Parallel()
	f := open(t)
	sixScenes(f)
	f.failing(archive, 4, outbox.EventError)
	must.Get(f.progress.Pause(f.Ctx, ana(""), archive)).Or(t)
	o := script("x")
	o.Confirm = "skip 1 events"
	must.Get(f.progress.Seek(f.Ctx, o, archive, toPosition(4), nil)).Or(t)
	f.isNow(archive, `paused at 4/0 errors 0 "" at 0 retry false stopped 0 acts 2 lease "" 1 paused "ana"`)
}

// The holder moves the position under its epoch, so that a batch in flight during a seek cannot set it back.
func TestSeek_isNotUndoneByABatchInFlight(t *testing.T) {
	t.Parallel()
	f := open(t)
	sixScenes(f)
	held := f.claimSubscription("worker-1", archive)
	seen, err := f.progress.PreviewSeek(f.Ctx, archive, toPosition(1))
	if err == nil {
		_, err = f.progress.Advance(f.Ctx, &held, delivered(4))
	}
	must.OK(t, err)
	seek, err := f.progress.Seek(f.Ctx, script("x"), archive, toPosition(1), &seen)
	must.Need(t, err == nil && seek.From == 4 && seek.Repeats == 2, "%+v, %v", seek, err)
	_, err = f.progress.Advance(f.Ctx, &held, delivered(6))
	must.Hold(t, errors.Is(err, outbox.ErrLeaseLost), "the holder of before advances: %v", err)
	must.Equal(t, f.publisher(archive).Position, 1, "it stands at")
}

func TestSeek_countsNoFurtherThanACap(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.journalOf(10_010, 5000)
	f.newSubscription(archive, scenes, 0)
	other := f.newSubscription(outbox.SubscriptionName{Topic: "all", Publisher: "a"}, every, 5)
	o := ana("old")
	o.Confirm = "skip 2 events"
	_, err := f.progress.Seek(f.Ctx, o, archive, outbox.SeekTarget{Head: true}, nil)
	refused(t, err, outbox.ErrInvalid, "at least 2 events", "type: skip over 2 events")
	seek, err := f.progress.PreviewSeek(f.Ctx, archive, toPosition(10_000))
	must.Hold(t, err == nil && !seek.Capped && seek.Skips == 2, "to the cap: %+v, %v", seek, err)
	seek, err = f.progress.PreviewSeek(f.Ctx, other, outbox.SeekTarget{Head: true})
	must.Hold(t, err == nil && seek.Capped && seek.Skips == 10_000, "of all: %+v, %v", seek, err)
	o.Confirm = outbox.ActionPublisherSeek.Phrase(outbox.Reach{Seek: seek})
	_, err = f.progress.Seek(f.Ctx, o, other, outbox.SeekTarget{Head: true}, &seek)
	must.Hold(t, err == nil, "%v", err)
	o.Confirm = "skip over 2 events"
	_, err = f.progress.Seek(f.Ctx, o, archive, outbox.SeekTarget{Head: true}, nil)
	must.Hold(t, err == nil, "%v", err)
}

// An append that has allocated its position and not committed is neither skipped silently nor left
// uncounted: the seek waits, and gives up if it takes long.
func TestPostgresSeek_waitsForAppendsUnderWay(t *testing.T) {
	t.Parallel()
	f := open(t)
	sixScenes(f)
	conn := storetest.Connect(t, f.Pair.Journal)
	must.Get(conn.PgConn().Exec(f.Ctx, f.Journal().BeginText(sqldb.BeginAppend)).ReadAll()).Or(t)
	storetest.Run(t, conn, `
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
values ('slow', 1, '1', 'scene.slow', 1, 1, '', '', '', '', '', '', '', '', '{}', '{}', '{}', '', '')`)
	f.AppendN("fast", 1) // its position is after that of the slow one
	f.Unchanged(func() {
		_, err := f.progress.Seek(f.Ctx, script("x"), archive, outbox.SeekTarget{Head: true}, nil)
		must.Hold(t, errors.Is(err, outbox.ErrBusy), "beside an append in progress: %v", err)
	})
	storetest.Run(t, conn, `commit`)
	o := script("x")
	o.Confirm = "skip 3 events"
	seek, err := f.progress.Seek(f.Ctx, o, archive, outbox.SeekTarget{Head: true}, nil)
	must.Hold(t, err == nil && seek.Skips == 3 && strings.Contains(fmt.Sprint(seek.To), "8"), "after it: %+v, %v", seek, err)
}
