package handlers

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
)

// pageBytes is the maximum size of a page.
const pageBytes = 60_000

// full fills the databases with eight days of samples: something in every step of every series, of
// more labels than a chart tells apart, and as many markers as are searched for.
func (s *site) full() *site {
	s.t.Helper()
	s.seed("c-1", "campaign.created")
	db := dbtest.Open(s.t, s.sub.Journal)
	now := s.clock.Truncate(outbox.CoarseStep).UnixMicro()
	exec := func(statement string, args ...any) {
		s.t.Helper()
		must.Get(db.Exec(`with recursive
  n(i) as (select cast(0 as bigint) union all select i + 1 from n where i < 11519),
  l(x) as (select cast(1 as bigint) union all select x + 1 from l where x < 60)
`+statement, args...)).Or(s.t)
	}
	const seen = `(i < 90 or i % 6 = 0)` // charts over more than an hour have steps of 6 minutes and more
	const minute, quarter = int64(time.Minute / time.Microsecond), int64(outbox.CoarseStep / time.Microsecond)
	exec(`insert into samples (minute, pending, processing, failed, dead, lag_events, blocked, oldest_enqueued_at, applied_total, failed_total)
select cast($1 as bigint) - i * cast($2 as bigint), 4000 + i * 7919 % 3571, 900 + i * 31 % 97, 2000 + i * 17 % 997, 3000 + i * 7 % 1009, 5000, 7, cast($1 as bigint) - i * cast($2 as bigint) - i * 7919 % 3571 * 1000000,
  90000000 - i * 7000 - i * 104729 % 6997, 9000000 - i * 700 - i * 104729 % 691 from n`, now, minute)
	for _, x := range []struct{ step, length, steps int64 }{{60, minute, 1559}, {900, quarter, 767}} {
		for kind, labels := range map[outbox.SeriesKind]int{outbox.SeriesFailure: 9, outbox.SeriesFollowed: 9, outbox.SeriesFailedIn: 9, outbox.SeriesBacklog: 9, outbox.SeriesBehind: 20} {
			exec(`insert into series_samples (kind, step, at, label, source, value)
select cast($1 as text), cast($2 as bigint), cast($3 as bigint) - i * cast($4 as bigint), case when cast($1 as text) = 'projection' and x = 9 then 'campaigns' else cast($1 as text) || '-of-many-' || x end, '', 90000 / x + i * (7919 + x * 104729) % 997 * 13 from n, l where i <= $5 and x <= $6 and `+seen, string(kind), x.step, now, x.length, x.steps, labels)
		}
		exec(`insert into series_samples (kind, step, at, label, source, value)
select 'applied', cast($1 as bigint), cast($2 as bigint) - i * cast($3 as bigint), '', 'outboxweb-7d9f8b6c5d-x' || x || '-1-0badcafe', 70000 / x + i * (7919 + x * 104729) % 997 * 13 from n, l where i <= $4 and x <= 9 and `+seen, x.step, now, x.length, x.steps)
		exec(`insert into series_samples (kind, step, at, label, source, value)
select 'delays', cast($1 as bigint), cast($2 as bigint) - i * cast($3 as bigint), cast(x as text), 'w', 1 + i * (7919 + x * 104729) % 997 from n, l where i <= $4 and x < 40 and `+seen, x.step, now, x.length, x.steps)
	}
	exec(`insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at)
select 'scenes', 'archive-' || x, 'log:', '{"event_types":["*"]}', 10, 0, 1, 1 from l where x <= 9`)
	exec(`insert into publisher_samples (topic, publisher, minute, delivered, lag_events, oldest_recorded_at, error_count)
select 'scenes', 'archive-' || x, cast($1 as bigint) - i * cast($2 as bigint), 90000000 - i * 700 - i * 104729 % 691, 90000 / x + i * (7919 + x * 104729) % 997 * 13, cast($1 as bigint) - i * cast($2 as bigint), 0 from n, l where x <= 9 and `+seen, now, minute)
	exec(`insert into instances (id, host, pid, version, mode, started_at, last_seen)
select 'outboxweb-7d9f8b6c5d-x' || x || '-1-0badcafe', 'outboxweb-7d9f8b6c5d-x' || x, 1, 'v' || x, 'outbox', cast($1 as bigint) - cast($2 as bigint) * cast($3 as bigint) - x * 1000000, $1 from l where x <= 9`, now, minute, 11519)
	return s
}

// What the audit log does not have is listed before actions, however many followed.
func TestCharts_listChangedProjectionsBeforeActions(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	s.beat("w-1", "v1")
	for _, version := range []string{"1111", "2222"} {
		s.clock = s.clock.Add(time.Minute)
		must.OK(t, s.store.Loaded(t.Context(), outbox.InstanceState{ID: "w-1", Host: "h"}, []outbox.Definition{{Projection: "campaigns", Version: version}}))
	}
	s.clock = s.clock.Add(time.Minute) // w-1 is silent
	for range 10 {
		s.post("/api/v1/campaigns/c-1/pause", `{"reason":"x"}`).want(t, 200)
		s.post("/api/v1/campaigns/c-1/resume", `{"reason":"x"}`).want(t, 200)
	}
	a := s.get("/charts").want(t, 200, "projection campaigns changed to 2222 on h", "instance w-1 was last seen at work",
		"12 of 22 markers: changed projections first, then deploys, crashes and actions, the latest of each.", "Pauses, resumes, operations and runs are in the <a ")
	if n := strings.Count(a.body, `class="glyph"`); n != 12 {
		t.Errorf("%d markers are listed", n)
	}
}

func TestCharts_pagesOfAFullStoreAreSmall(t *testing.T) {
	s := ownSite(t).full()
	for range 7 {
		s.post("/api/v1/campaigns/c-1/pause", `{"reason":"x"}`).want(t, 200)
		s.post("/api/v1/campaigns/c-1/resume", `{"reason":"x"}`).want(t, 200)
	}
	ranges := []string{"range=7d", "from=2026-11-20T05:00:00Z&to=2026-11-21T07:07:00Z", "range=1h", "from=2026-11-20T00:30:00Z"}
	for _, over := range ranges[:size.Of(2, 4, 4)] {
		for _, page := range []string{"/charts?", "/charts?table=true&", "/?", "/instances?", "/publishers?", "/publishers/scenes/archive-1?", "/projections/campaigns?"} {
			a := s.get(page+over).want(t, 200)
			if n := len(a.body); n > pageBytes {
				t.Errorf("%s has %d bytes", page+over, n)
			}
		}
	}
	a := s.get("/charts?range=7d").want(t, 200, `href="/instances?range=7d`, `href="/publishers/scenes/archive-1?range=7d"`, `href="/projections/projection-of-many-1?range=7d"`, `href="/campaigns/behind-of-many-1?range=7d"`)
	if n := strings.Count(a.body, ` class="plot"`); n != 10 {
		t.Errorf("%d charts, want ten", n)
	}
	s.get("/charts?range=6h").want(t, 200, "Applied, per minute, averaged over 6 min; lighter, the peak minute: now", "Failures by error, failed attempts per minute, averaged over 6 min, peak",
		"Applied by projection, events without replays per minute, averaged over 6 min, peak", "Failures by projection, failed attempts per minute, averaged over 6 min, peak",
		"Applied by instance, events per minute, averaged over 6 min, peak")
	s.get("/charts").want(t, 200, "Failures by error, failed attempts per minute, peak")
	s.get("/instances?range=6h").want(t, 200, "Applied by instance", `href="/?range=6h"`, `href="/campaigns?range=6h"`)
	s.get("/publishers?range=6h").want(t, 200, "Publisher lag", `href="/publishers/scenes/archive-9?range=6h"`)
	s.get("/campaigns?range=6h").want(t, 200, `href="/campaigns/c-1?range=6h"`)
	s.get("/projections/campaigns").want(t, 200, "Applied by projection")
}
