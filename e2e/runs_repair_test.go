package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clubProjections are two read models that fail on some journals unless given other statements:
// seats blocks its campaign, badges is quarantined.
func clubProjections(secondSeat, secondBadge string) map[string]string {
	return map[string]string{
		"seats.sql": `
-- projection: seats
-- tables: seats
-- on-failure: block

-- schema
create table seats (
  campaign_id text not null,
  user_id text not null,
  seat text not null,
  primary key (campaign_id, user_id)
);

-- on: seat.taken
insert into seats (campaign_id, user_id, seat) values (:campaign_id, :payload.user!, :payload.seat!) ` + secondSeat + `;
`,
		"badges.sql": `
-- projection: badges
-- tables: badges
-- on-failure: quarantine

-- schema
create table badges (
  campaign_id text not null,
  user_id text not null,
  given bigint not null,
  primary key (campaign_id, user_id)
);

-- on: badge.given
insert into badges (campaign_id, user_id, given) values (:campaign_id, :payload.user!, 1) ` + secondBadge + `;
`}
}

// A second seat replaces the first, a second badge is counted.
const (
	moveSeat   = "on conflict (campaign_id, user_id) do update set seat = excluded.seat"
	countBadge = "on conflict (campaign_id, user_id) do update set given = badges.given + 1"
)

// badge is the event that a user is given a badge.
func badge(user string) event {
	return event{EventType: "badge.given", Payload: map[string]any{"user": user}}
}

// rewrite puts other files into a directory of projections.
func rewrite(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// projectionDoc is what the tests read of a projection.
type projectionDoc struct {
	Name                string
	Quarantined, Behind int64
	OpenFailures        int64 `json:"open_failures"`
	BuiltByOtherVersion bool  `json:"built_by_other_version"`
}

func projectionsOf(t *testing.T, s *server) map[string]projectionDoc {
	t.Helper()
	var list struct{ Items []projectionDoc }
	s.get(t, "/api/v1/projections", &list)
	byName := map[string]projectionDoc{}
	for _, p := range list.Items {
		byName[p.Name] = p
	}
	return byName
}

// cursorDoc is what the tests read of a projection in a campaign.
type cursorDoc struct {
	Projection string
	State      string
	AppliedSeq int64 `json:"applied_seq"`
	LagEvents  int64 `json:"lag_events"`
}

func cursorsOf(t *testing.T, s *server, campaign string) map[string]cursorDoc {
	t.Helper()
	var list struct{ Items []cursorDoc }
	s.get(t, "/api/v1/campaigns/"+campaign+"/projections", &list)
	byName := map[string]cursorDoc{}
	for _, c := range list.Items {
		byName[c.Projection] = c
	}
	return byName
}

// awaitCursor waits until a projection has this state in a campaign.
func awaitCursor(t *testing.T, s *server, campaign string, want cursorDoc) {
	t.Helper()
	eventually(t, patience, fmt.Sprintf("in campaign %s there is %+v", campaign, want), func() (bool, string) {
		got := cursorsOf(t, s, campaign)[want.Projection]
		return got == want, fmt.Sprintf("%+v", got)
	})
}

// failureDoc is what the tests read of a failure.
type failureDoc struct {
	CampaignID string `json:"campaign_id"`
	Projection string
	Seq        int64
	Status     string
}

// failuresOf lists failures as the API does and as the command does.
func failuresOf(t *testing.T, s *server, d databases, status string, flags []string) []failureDoc {
	t.Helper()
	var list struct{ Items []failureDoc }
	s.get(t, "/api/v1/failures?status="+status, &list)
	var told struct{ Failures []failureDoc }
	out := mustCommand(t, d, nil, append([]string{"failures", "projections", "--status", status, "--json"}, flags...)...)
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	byName := func(a, b failureDoc) int {
		return strings.Compare(a.CampaignID+a.Projection, b.CampaignID+b.Projection)
	}
	slices.SortFunc(list.Items, byName)
	slices.SortFunc(told.Failures, byName)
	if diff := cmp.Diff(list.Items, told.Failures); diff != "" {
		t.Errorf("the API and the command differ about failures (-API +command):\n%s", diff)
	}
	return list.Items
}

// everything is the contents of both databases, table by table, without what a server keeps writing
// about itself.
func everything(t *testing.T, d databases) map[string][]string {
	t.Helper()
	tables := "select name from sqlite_master where type = 'table' order by name"
	if d.url != "" {
		tables = "select table_name as name from information_schema.tables where table_schema = current_schema() order by 1"
	}
	all := map[string][]string{}
	for _, place := range []string{d.journal(), d.projections()} {
		var names []string
		each(t, place, tables, func(row map[string]any) { names = append(names, row["name"].(string)) })
		for _, name := range names {
			if slices.Contains([]string{"instances", "samples", "campaign_samples", "series_samples", "projection_loads"}, name) || strings.HasPrefix(name, "sqlite_") {
				continue
			}
			rows := []string{}
			each(t, place, "select * from "+name, func(row map[string]any) { rows = append(rows, fmt.Sprint(row)) })
			slices.Sort(rows)
			all[place+" "+name] = rows
		}
	}
	return all
}

// A projection with a mistake is fixed: the effect of the new files is tried first without changing
// anything, then the server runs with them, everything is rebuilt and requeued, and finally no
// problem is left.
func TestProjectionIsFixed(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, d databases) {
		flags := writeProjections(t, clubProjections("", ""))
		fixed := clubProjections(moveSeat, countBadge)
		newFlags := writeProjections(t, fixed)
		serve := slices.Concat(quickDeath, flags)
		s := start(t, d, serve...)
		appendTo(t, s, "", "table", seats("ana", "ben", "ana", "cem"))
		appendTo(t, s, "", "hall", []event{badge("ana"), badge("ana"), badge("ben"), taken("seat-1", "ana")})
		appendTo(t, s, "", "calm", []event{badge("ana"), taken("seat-1", "ana")})
		awaitCounts(t, s, "", 1, 0, 1)
		open := []failureDoc{{"hall", "badges", 2, "open"}, {"table", "seats", 3, "open"}}
		if diff := cmp.Diff(open, failuresOf(t, s, d, "open", flags)); diff != "" {
			t.Errorf("failures before (-want +got):\n%s", diff)
		}

		before := everything(t, d)
		try := func(code int, want string, args ...string) {
			t.Helper()
			r := command(t, d, nil, args...)
			if r.code != code || !shown(r.stdout, want) {
				t.Errorf("outboxweb %s: exit %d, want %d and %q:\n%s%s", strings.Join(args, " "), r.code, code, want, r.stdout, r.stderr)
			}
		}
		try(1, "event 3 (seat.taken) would fail", append([]string{"requeue", "table", "3", "--dry-run"}, flags...)...)
		try(0, `changed seats user_id="ana": seat "seat-1" → "seat-3"`, append([]string{"requeue", "table", "3", "--dry-run"}, newFlags...)...)
		try(0, `added seats user_id="cem"`, append([]string{"requeue", "table", "3", "--dry-run", "--next", "1"}, newFlags...)...)
		try(1, "badges: event 2 cannot be replayed…2 would not change, 0 would change, 1 cannot be replayed", append([]string{"runs", "start", "rebuild", "--all", "--dry-run"}, flags...)...)
		try(1, "badges: 1 row added, 1 changed, 0 removed; replayed with version …, rows built by version …2 would not change, 1 would change, 0", append([]string{"runs", "start", "rebuild", "--all", "--dry-run"}, newFlags...)...)
		moved := writeProjections(t, clubProjections(strings.Replace(moveSeat, "excluded.seat", "'moved'", 1), countBadge))
		try(0, "2 campaigns replayed: 2 would not change", append([]string{"runs", "start", "rebuild", "--campaign", "table", "--campaign", "calm", "--dry-run"}, moved...)...)
		other := clubProjections(moveSeat, countBadge)
		other["seats.sql"] = strings.Replace(other["seats.sql"], ":payload.seat!)", "upper(:payload.seat!))", 1)
		try(1, `changed seats user_id="ana": seat "seat-1" → "SEAT-1"`, append([]string{"runs", "start", "rebuild", "--campaign", "calm", "--dry-run"}, writeProjections(t, other)...)...)
		if diff := cmp.Diff(before, everything(t, d)); diff != "" {
			t.Errorf("dry runs changed something (-before +after):\n%s", tail(diff, 3000))
		}

		if code := s.stop(t); code != 0 {
			t.Fatalf("the server ended with exit code %d", code)
		}
		rewrite(t, flags[1], fixed)
		s = start(t, d, serve...)
		for name, p := range projectionsOf(t, s) {
			if !p.BuiltByOtherVersion {
				t.Errorf("projection %s is %+v, and its tables are those of another version", name, p)
			}
		}
		if a := do(t, s, http.MethodGet, "/projections", nil); !strings.Contains(string(a.body), "not built by this version") {
			t.Error("the page does not say that rows were not built by this one")
		}
		out := mustCommand(t, d, nil, append([]string{"projections", "status"}, flags...)...)
		if strings.Count(out, "; loaded is ") != 2 {
			t.Errorf("projections status printed %s", out)
		}

		out = mustCommand(t, d, nil, append([]string{"runs", "start", "rebuild", "--all", "--wait", "--reason", "a second seat is a move", "--confirm", rebuildPhrase}, flags...)...)
		if !shown(out, "run 1 is completed: rebuild of projections badges and seats in all campaigns") {
			t.Errorf("the rebuild printed %s", out)
		}
		awaitCursor(t, s, "hall", cursorDoc{"badges", "live", 4, 0})
		mustCommand(t, d, nil, append([]string{"requeue", "table", "3", "--reason", "a second seat is a move"}, flags...)...)
		if sum := s.awaitSettled(t); sum.Counts.Dead > 0 || sum.Lag.Events > 0 {
			t.Errorf("settled at %+v", sum)
		}
		for name, p := range projectionsOf(t, s) {
			if p != (projectionDoc{Name: name}) {
				t.Errorf("in the end there is %+v", p)
			}
		}
		if open := failuresOf(t, s, d, "open", flags); len(open) > 0 {
			t.Errorf("failures are left open: %+v", open)
		}
		if resolved := failuresOf(t, s, d, "resolved", flags); len(resolved) != 2 {
			t.Errorf("resolved are %+v", resolved)
		}
		if seat := scalar[string](t, d.projections(), "select seat from seats where campaign_id = 'table' and user_id = 'ana'"); seat != "seat-3" {
			t.Errorf("ana sits on %s", seat)
		}
		if given := scalar[int64](t, d.projections(), "select given from badges where campaign_id = 'hall' and user_id = 'ana'"); given != 2 {
			t.Errorf("ana has %d badges", given)
		}
		verified(t, d, 0, flags...)
		checkClean(t, d, flags...)
	})
}

// A projection that is quarantined in a campaign blocks nothing there. Once it is fixed, a replay
// over HTTP, or with the command, catches it up.
func TestQuarantine_othersGoOnAndAReplayBringsItLevel(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, d databases) {
		flags := writeProjections(t, clubProjections("", ""))
		serve := slices.Concat(quickDeath, flags)
		s := start(t, d, serve...)
		for _, campaign := range []string{"hall", "barn"} {
			appendTo(t, s, "", campaign, []event{taken("seat-1", "ana"), badge("ana"), badge("ana"), badge("ben"), taken("seat-2", "ben")})
		}
		if sum := s.awaitSettled(t); sum.Counts.Dead > 0 || sum.Campaigns.Blocked > 0 {
			t.Errorf("a quarantine blocks: %+v", sum)
		}
		for _, campaign := range []string{"hall", "barn"} {
			want := map[string]cursorDoc{"badges": {"badges", "quarantined", 2, 3}, "seats": {"seats", "live", 5, 0}}
			if diff := cmp.Diff(want, cursorsOf(t, s, campaign)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", campaign, diff)
			}
		}
		if n := scalar[int64](t, d.projections(), "select count(*) from seats"); n != 4 {
			t.Errorf("%d seats are taken, want 4", n)
		}
		verified(t, d, 0, flags...) // a quarantined projection is correct as of its position

		r := awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "replay", "campaign_id": "hall", "reason": "too early"}).ID)
		if r.Status == "completed" && r.Counts.Failed == 0 || cursorsOf(t, s, "hall")["badges"].State != "quarantined" {
			t.Errorf("a replay before the repair: %+v", r)
		}
		if open := failuresOf(t, s, d, "open", flags); len(open) != 2 {
			t.Errorf("open are %+v", open)
		}

		if code := s.stop(t); code != 0 {
			t.Fatalf("the server ended with exit code %d", code)
		}
		rewrite(t, flags[1], clubProjections("", countBadge))
		s = start(t, d, serve...)
		if r := awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "replay", "campaign_id": "hall", "projections": []string{"badges"}, "reason": "mended"}).ID); r.Status != "completed" || r.Counts.Replayed != 1 {
			t.Errorf("the replay: %+v", r)
		}
		awaitCursor(t, s, "hall", cursorDoc{"badges", "live", 5, 0})
		if open := failuresOf(t, s, d, "open", flags); len(open) != 1 || open[0].CampaignID != "barn" {
			t.Errorf("open are %+v", open)
		}
		mustCommand(t, d, nil, append([]string{"runs", "start", "replay", "--campaign", "barn", "--projection", "badges", "--wait", "--reason", "mended"}, flags...)...)
		awaitCursor(t, s, "barn", cursorDoc{"badges", "live", 5, 0})
		if open := failuresOf(t, s, d, "open", flags); len(open) != 0 {
			t.Errorf("open are %+v", open)
		}
		appendTo(t, s, "", "barn", []event{badge("ana")})
		s.awaitSettled(t)
		if given := scalar[int64](t, d.projections(), "select sum(given) from badges where campaign_id = 'barn'"); given != 4 {
			t.Errorf("%d badges were given, want 4", given)
		}
		verified(t, d, 0, flags...)
		checkClean(t, d, flags...)
	})
}

// A projection is paused, in one campaign and then for all, while events keep coming: the others go
// on, and once resumed it catches up by itself.
func TestProjection_pausedAndResumedUnderLoad(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, d databases) {
		flags := writeProjections(t, ledgerProjections)
		s := start(t, d, append([]string{"--poll-interval", "100ms"}, flags...)...)
		l := startLoad(t, 2, 3)
		l.steady(20 * time.Millisecond)
		l.point(s)
		l.awaitProgress(t, 20)
		one := l.campaigns[0]

		s.post(t, http.StatusOK, "/api/v1/projections/ledger/pause", map[string]any{"campaign_id": one, "reason": "counted by hand"})
		stood := cursorsOf(t, s, one)["ledger"].AppliedSeq
		l.awaitProgress(t, 30)
		eventually(t, patience, "the tally is ahead of the ledger", func() (bool, string) {
			c := cursorsOf(t, s, one)
			return c["ledger"].State == "paused" && c["ledger"].AppliedSeq == stood && c["tally"].AppliedSeq > stood, fmt.Sprintf("%+v", c)
		})
		if c := cursorsOf(t, s, l.campaigns[1])["ledger"]; c.State != "live" {
			t.Errorf("in another campaign it is %+v", c)
		}
		out := mustCommand(t, d, nil, append([]string{"projections", "status", "ledger"}, flags...)...)
		if !shown(out, "paused in 1…"+one+"…paused") {
			t.Errorf("projections status printed %s", out)
		}
		verified(t, d, 0, flags...)
		mustCommand(t, d, nil, append([]string{"projections", "resume", "ledger", "--campaign", one, "--reason", "counted"}, flags...)...)
		awaitLive(t, s, l.campaigns)

		mustCommand(t, d, nil, append([]string{"projections", "pause", "ledger", "--reason", "a long night"}, flags...)...)
		rows := func() int64 { return scalar[int64](t, d.projections(), "select count(*) from ledger") }
		n := rows()
		l.awaitProgress(t, 30)
		if m := rows(); m != n {
			t.Errorf("a paused projection went on from %d to %d rows", n, m)
		}
		s.post(t, http.StatusOK, "/api/v1/projections/ledger/resume", map[string]any{"reason": "morning"})
		awaitLive(t, s, l.campaigns)
		l.finish(t)
		s.awaitSettled(t)
		awaitLive(t, s, l.campaigns)
		if n, m := rows(), scalar[int64](t, d.journal(), "select count(*) from events"); n != m {
			t.Errorf("the ledger has %d rows, the journal %d events", n, m)
		}
		verified(t, d, 0, flags...)
		checkClean(t, d, flags...)
	})
}

// awaitLive waits until every projection is live in the campaigns.
func awaitLive(t *testing.T, s *server, campaigns []string) {
	t.Helper()
	eventually(t, patience, "every projection follows every campaign", func() (bool, string) {
		for _, campaign := range campaigns {
			for _, c := range cursorsOf(t, s, campaign) {
				if c.State != "live" {
					return false, fmt.Sprintf("%s: %+v", campaign, c)
				}
			}
		}
		return true, ""
	})
}
