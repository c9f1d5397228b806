package main

import (
	"cmp"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
)

// planted is a state that the tables have, and that every surface has to tell.
type planted struct {
	name   string
	plant  func(*scene)
	level  finding.Level // what the state is; ok where nothing is wrong
	says   string        // a pattern of what each surface says of it
	never  string        // a pattern of what none may say beside it
	page   string        // of its own, that says it too
	alerts string        // the rules that find it
	alone  bool          // no other state stands beside it
	unlike string        // the surfaces that do not tell it so yet. The list may only get shorter
}

const unblocked = `(?i)no campaign is blocked|everything is applied|all .*campaigns? (is|are) current\.`

func ago(d time.Duration) int64 { return time.Now().Add(-d).UnixMicro() }

func (s *scene) instance(id, sets string) {
	s.sql(fmt.Sprintf(`
insert into instances (id, host, pid, version, mode, started_at, last_seen, applied, failed, fenced, applied_per_second, failed_per_second)
values ('%s', 'elsewhere', 7, 'v1', 'outbox_apply_only', %[2]d, %[2]d, 0, 0, 0, 0, 0)`, id, ago(0)), `update instances set `+sets+` where id = '`+id+`'`)
}

func (s *scene) readModel(statements ...string) {
	s.run(s.behind.projections, statements)
}

func inJournal(format string, args ...any) func(*scene) {
	return func(s *scene) { s.sql(fmt.Sprintf(format, args...)) }
}

// verified has a campaign in which a verify by a version of the projection, or the loaded one, found this.
func verified(verdict, version string) func(*scene) {
	return func(s *scene) {
		s.has("c-v", "taken")
		loaded := must.Get(s.ReadModel().Versions(s.t.Context())).Or(s.t)["seats"]
		s.sql(fmt.Sprintf(`insert into projection_loads (projection, at, version, previous, instance, host) values ('seats', %d, '%s', '', 'w-1', 'h')`, ago(time.Hour), loaded))
		s.sql(fmt.Sprintf(`insert into verifications (campaign_id, projection, at, seq, verdict, run_id, digest, added, changed, removed, first_seq, error, version)
values ('c-v', 'seats', %d, 1, '%s', 1, '', 0, 1, 0, 1, 'the event is refused', '%s')`, ago(time.Minute), verdict,
			cmp.Or(version, loaded)))
	}
}

func publishes(sets string) func(*scene) {
	return all(publish, inJournal("%s", `update publisher_progress set `+sets))
}

// read has sources that were read just now.
func read(given func(*scene)) func(*scene) {
	return func(s *scene) {
		given(s)
		s.sql(fmt.Sprintf(`update intake_sources set looked_at = %d, lease_owner = 'w-1', lease_expires_at = 4102444800000000`, ago(0)))
	}
}

func ran(status string) func(*scene) {
	return inJournal(`
insert into runs (kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at, finished_at, error)
values ('verify', '%s', '[]', 1, '["seats"]', '{}', '', 'ana', 'cli', '', %[2]d, %[2]d, %[2]d, 'the disk was full')`, status, ago(time.Minute))
}

func aside(state string) func(*scene) {
	return func(s *scene) {
		s.has("c-aside", "taken", "taken")
		s.readModel(fmt.Sprintf(`insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('c-aside', 'seats', 1, '%s', %d)`, state, ago(0)),
			`update projection_watermarks set set_aside = 1 where campaign_id = 'c-aside'`)
	}
}

// in has a worker and a server in another mode from now on.
func in(mode campaign.Mode) func(*scene) {
	return func(s *scene) {
		s.sql(fmt.Sprintf(`update instances set mode = '%s'`, mode))
		s.mode = mode
		s.serve()
		s.flags = append(s.flags, "--mode", string(mode))
	}
}

// lostRows has a campaign with events that have no row.
func lostRows(where, sets string) func(*scene) {
	return func(s *scene) {
		s.has("c-gap", "taken", "full", "taken")
		s.sql(`delete from projection_apply_outbox where campaign_id = 'c-gap' and `+where, `update campaigns set `+sets+` where campaign_id = 'c-gap'`)
	}
}

// inTheWay has a run that keeps a replay waiting.
func inTheWay(s *scene) {
	aside("behind")(s)
	s.does(startVerify.with("kind=verify&campaign_ids=c-aside", `{"kind":"verify","campaign_id":"c-aside"}`, ""))
}

var states = []planted{
	{name: "nothing", plant: func(*scene) {}, level: finding.OK, says: ``, page: "/campaigns"},
	{name: "dead", plant: func(s *scene) { s.has("c-dead", "taken", "lost", "taken") }, level: finding.Bad, says: `blocked`, never: unblocked, alerts: "dead_rows", page: "/campaigns/c-dead"},
	{name: "failing", plant: func(s *scene) { s.has("c-fail", "taken", "full", "taken") }, level: finding.Warn, says: `failed|failing`, never: unblocked, page: "/campaigns/c-fail"},
	{name: "paused campaign", plant: func(s *scene) { s.has("c-p", "taken"); s.does(pause.at("c-p")) }, level: finding.Warn, says: `paused|\bc-p\b`, never: `(?i)nothing is paused`, alerts: "paused", page: "/campaigns/c-p"},
	{name: "paused projection", plant: func(s *scene) { s.does(pauseSeats) }, level: finding.Warn, says: `seats is paused|(?i)for all campaigns`, never: `(?i)nothing is paused|everything is applied`, alerts: "paused", page: "/projections/seats"},
	{name: "paused projection here", plant: func(s *scene) { s.does(pauseSeatsHere) }, level: finding.Warn, says: `seats is paused|for 1 campaign`, never: `(?i)nothing is paused`, alerts: "paused", page: "/campaigns/c-1"},
	{name: "quarantined", plant: aside("quarantined"), level: finding.Bad, says: `quarantined`, alerts: "quarantine", page: "/campaigns/c-aside"},
	{name: "behind", plant: aside("behind"), level: finding.Warn, says: `seats is (1 event )?behind`, page: "/campaigns/c-aside"},
	{name: "diverged", plant: func(s *scene) {
		s.has("c-d", "taken")
		s.sql(`update campaigns set diverged = 'event 1 has another hash' where campaign_id = 'c-d'`)
	}, level: finding.Bad, says: `diverged|another journal|contradict`, never: unblocked, alerts: "drift", page: "/campaigns/c-d"},
	{name: "drifted", plant: verified("drift", ""), level: finding.Bad, says: `drifted|differ`, alerts: "drift", page: "/campaigns/c-v"},
	{name: "outdated drift", plant: verified("drift", "0ld"), level: finding.Warn, says: `not loaded any more|outdated`, alerts: "drift", page: "/campaigns/c-v"},
	{name: "unverifiable", plant: verified("failed", ""), level: finding.Bad, says: `could not be verified|unverifiable`, alerts: "drift", page: "/campaigns/c-v"},
	{name: "rejected rows", plant: read(rejected), level: finding.Bad, says: `rejected`, never: unblocked, alerts: "rejected_rows", page: "/campaigns/c-1"},
	{name: "foreign source", plant: read(foreign), level: finding.Bad, says: `source shop|shop source`, alerts: "rejected_rows source", page: "/intake/shop"},
	{name: "unread source", plant: inJournal(`insert into intake_sources (source, place, journalled, looked_at, waiting) values ('idle', 'postgres://shop', 7, %d, 3)`, ago(30*time.Minute)),
		level: finding.Warn, says: `\bidle\b`, alerts: "source", page: "/intake/idle"},
	{name: "source in error", plant: read(inJournal(`insert into intake_sources (source, place, error, error_at) values ('away', 'postgres://shop', 'connection refused', %d)`, ago(0))), level: finding.Bad, says: `\baway\b`, alerts: "source", page: "/intake/away"},
	{name: "failed publisher", plant: publishes(fmt.Sprintf(`status = 'failed', error_count = 10, error_kind = 'event', last_error = 'status 500', last_error_at = %d, error_position = 3, retry_at = 2`, ago(time.Hour))),
		level: finding.Bad, says: `[Pp]ublisher`, alerts: "publisher", page: "/publishers/sales/partner"},
	{name: "stopped publisher", plant: publishes(fmt.Sprintf(`status = 'failed', stopped = 1, error_count = 10, error_kind = 'destination', last_error = 'status 500', last_error_at = %d, error_position = 3`, ago(time.Hour))),
		level: finding.Bad, says: `[Pp]ublisher`, alerts: "publisher", page: "/publishers/sales/partner"},
	{name: "paused publisher", plant: func(s *scene) { publish(s); s.does(pausePartner) }, level: finding.Warn, says: `[Pp]ublisher`, never: `(?i)nothing is paused`, alerts: "paused", page: "/publishers/sales/partner"},
	{name: "retrying publisher", plant: publishes(fmt.Sprintf(`error_count = 2, error_kind = 'destination', last_error = 'status 500', last_error_at = %d, error_position = 3, retry_at = %d`, ago(time.Minute), ago(-time.Hour))),
		level: finding.Warn, says: `[Pp]ublisher`, page: "/publishers/sales/partner"},
	{name: "silent instance", plant: func(s *scene) {
		s.instance("w-2", fmt.Sprintf(`beat_every = 5000000, last_seen = %d`, ago(time.Minute)))
	}, level: finding.Warn, says: `silent`, alerts: "instance", page: "/instances"},
	{name: "stalled instance", plant: func(s *scene) {
		s.instance("w-2", `beat_every = 86400000000, trouble = 'the disk is slow', stalled = 1`)
	}, level: finding.Bad, says: `stalled|the disk is slow`, alerts: "instance", page: "/instances"},
	{name: "troubled instance", plant: func(s *scene) { s.instance("w-2", `beat_every = 86400000000, trouble = 'one wave failed'`) }, level: finding.Warn, says: `one wave failed`, page: "/instances"},
	{name: "no worker", plant: func(s *scene) { s.sql(fmt.Sprintf(`update instances set stopped_at = %d`, ago(time.Minute))) }, level: finding.Warn, says: `(?i)no (worker|instance) is running|none is running`, page: "/instances"},
	{name: "failed run", plant: ran("failed"), level: finding.Warn, says: `failed`, alerts: "failed_run", page: "/runs"},
	{name: "interrupted run", plant: ran("interrupted"), level: finding.Warn, says: `interrupted|failed`, alerts: "failed_run", page: "/runs"},
	{name: "operation stopped", plant: func(s *scene) {
		s.has("c-o", "taken", "lost")
		s.does(start)
		s.sql(fmt.Sprintf(`update operations set status = 'stopped', stop_reason = 'the canary failed again', finished_at = %d`, ago(0)))
	}, level: finding.Bad, says: `\b(ended|stopped)\b`, alerts: "dead_rows", page: "/operations/1"},
	{name: "skipped", plant: func(s *scene) {
		s.has("c-s", "taken", "lost")
		s.does(skip.at("c-s 2").confirmed("skip c-s 2"))
		s.work()
	}, level: finding.OK, says: ``, page: "/campaigns"},
	{name: "projection not loaded", plant: func(s *scene) {
		s.readModel(fmt.Sprintf(`insert into projection_versions (projection, version, built_version, installed_at) values ('old', '', 'x', %d)`, ago(time.Hour)))
	}, level: finding.Warn, says: `\bold\b`, page: "/projections/old"},
	{name: "built by another version", plant: func(s *scene) {
		s.readModel(`update projection_versions set built_version = '0ther' where projection = 'seats'`)
	}, level: finding.Warn, says: `another version|other versions|built by`, page: "/projections/seats"},
	{name: "table dropped", plant: func(s *scene) {
		s.ReadModel().SetFault(database.FaultTable, "A table of a read model was missing: seats. Rebuild its projection.")
	}, level: finding.Bad, says: `table of a read model was missing`, alerts: "database", page: "/", unlike: "report"},
	{name: "full disk", plant: func(s *scene) {
		s.Journal().SetFault(database.FaultFull, "The disk of the journal database is full.")
	}, level: finding.Bad, says: `disk of the journal database is full`, alerts: "database", page: "/", unlike: "report"},
	{name: "other journal", plant: inJournal(`update campaigns set high_water_seq = 0, applied_seq = 0, diverged = 'event 4 is not in the journal'`), level: finding.Bad,
		says: `journal is empty|another journal|contradict`, never: unblocked, alerts: "drift", page: "/campaigns/c-1", alone: true},
	{name: "another journal, not compared", plant: func(s *scene) {
		s.readModel(`update projection_watermarks set applied_hash = 'another'`)
		s.sql(`update campaigns set high_water_seq = 0, applied_seq = 0`)
	}, level: finding.Bad, says: `projections have events`, never: unblocked, alerts: "drift", page: "/", alone: true},
	{name: "shadow mode", plant: in(campaign.ModeShadow), level: finding.Warn, says: `shadow_only`, never: `(?i)nothing is paused|everything is applied`, page: "/instances"},
	{name: "worker in shadow mode", plant: func(s *scene) {
		must.Get(s.Append(s.t.Context(), store.Append{Events: []event.Event{{CampaignID: "c-wait", EventType: "taken", Payload: []byte(`{}`)}}})).Or(s.t)
		s.sql(`update instances set mode = 'shadow_only'`)
	}, level: finding.Warn, says: `shadow_only|rehears`, never: `(?i)nothing is paused|free worker`, page: "/campaigns/c-wait"},
	{name: "inline mode", plant: in(campaign.ModeInline), level: finding.OK, says: ``, never: `(?i)nothing is paused`, page: "/campaigns"},
	{name: "run in the way", plant: inTheWay, level: finding.Busy, says: `waits for run \d+ to end`, page: "/campaigns/c-aside"},
	{name: "row lost behind a failed one", plant: lostRows(`seq = 3`, `pending = 0`), level: finding.Warn, says: `failed|failing`, never: unblocked, page: "/campaigns/c-gap"},
	{name: "rows lost", plant: lostRows(`true`, `pending = 0, failed = 0, head_seq = null, head_status = null, due_at = null`), level: finding.Busy, says: `not yet applied|neither been applied`, never: unblocked, alerts: "no_progress", page: "/campaigns/c-gap", alone: true},
	{name: "gap of positions", plant: all(publish, inJournal(`update sqlite_sequence set seq = seq + 1000 where name = 'events'`), func(s *scene) { s.has("c-far", "taken") }), level: finding.OK, says: ``, never: `\b1,00\d events`, page: "/publishers/sales/partner"},
	{name: "muted alerts", plant: func(s *scene) { s.does(muteDrift) }, level: finding.OK, says: ``, page: "/alerts"},
	{name: "other clock", plant: func(s *scene) {
		s.instance("w-2", fmt.Sprintf(`beat_every = 86400000000, last_seen = %d`, ago(-90*time.Second)))
	}, level: finding.Warn, says: `clock`, page: "/instances"},
}

var (
	healthLevel = regexp.MustCompile(`class="health h-(\w+)"`)
	pageTitle   = regexp.MustCompile(`<title>(.*?)</title>`)
	markup      = regexp.MustCompile(`(?s)<(script|style|head).*?</(script|style|head)>|<[^>]*>`)
	marks       = map[finding.Level]string{finding.Warn: "!", finding.Bad: "✕"}
)

// pieces are the lines of a surface's text, of HTML the texts between tags, of JSON the members.
func pieces(text string) []string {
	return strings.FieldsFunc(html.UnescapeString(markup.ReplaceAllString(text, "\n")), func(r rune) bool { return r == '\n' || r == ',' })
}

// surfaces are what each says, and of the object's own page.
func (s *scene) surfaces(page string) map[string]string {
	s.Changed()
	get := func(target string) string {
		return s.send(s.http, http.MethodGet, target, "", operator.RoleAdmin, http.Header{}).text
	}
	out, errs, _ := here(s.t.Context(), append([]string{"report"}, s.flags...)...)
	return map[string]string{"overview": get("/"), "report": out + errs, "summary": get("/api/v1/summary"), "ready": get("/readyz?verbose"), "page": get(page), "metrics": get("/metrics"), "alerts": s.firing()}
}

// firing are the names of the rules of alerts that find something now.
func (s *scene) firing() string {
	var names []string
	facts := must.Get(s.Facts.Read(s.t.Context())).Or(s.t)
	for _, rule := range alerts.AlertRules() {
		if slices.ContainsFunc(rule.Causes(facts), func(c alerts.AlertCause) bool { return !c.Lingers }) {
			names = append(names, rule.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

var findingSample = regexp.MustCompile(`outboxweb_findings\{kind="\w+",level="(\w+)"\} [1-9]`)

// disagree plants states beside a worker and returns the surfaces that do not tell them, with why. What
// they say without a state does not tell it.
func (s *scene) disagree(planted ...planted) map[string]string {
	current(s)
	s.instance("w-1", `beat_every = 86400000000`)
	calm, level, firing := map[string]bool{}, finding.OK, []string{}
	for _, p := range planted {
		level, firing = finding.Worse(level, p.level), append(firing, strings.Fields(p.alerts)...)
		for _, text := range s.surfaces(p.page) {
			for _, piece := range pieces(text) {
				calm[piece] = true
			}
		}
	}
	for _, p := range planted {
		p.plant(s)
	}
	slices.Sort(firing)
	firing = slices.Compact(firing)
	wrong := map[string]string{}
	for _, p := range planted {
		texts := s.surfaces(p.page)
		if shown := append(healthLevel.FindStringSubmatch(texts["overview"]), "", "")[1]; shown != string(level) {
			wrong["overview"] = fmt.Sprintf("is %s, not %s", shown, level)
		}
		title := html.UnescapeString(append(pageTitle.FindStringSubmatch(texts["overview"]), "", "")[1])
		if mark, _, _ := strings.Cut(title, " "); mark != cmp.Or(marks[level], "Overview") {
			wrong["title"] = fmt.Sprintf("is %q, and the state is %s", title, level)
		}
		counted := finding.OK
		for _, m := range findingSample.FindAllStringSubmatch(texts["metrics"], -1) {
			counted = finding.Worse(counted, finding.Level(m[1]))
		}
		if counted != level {
			wrong["metrics"] = fmt.Sprintf("are %s, not %s", counted, level)
		}
		if texts["alerts"] != strings.Join(firing, " ") {
			wrong["alerts"] = fmt.Sprintf("are %q, not %q", texts["alerts"], firing)
		}
		for _, surface := range []string{"overview", "report", "summary", "ready", "page"} {
			all := pieces(texts[surface])
			told := slices.DeleteFunc(slices.Clone(all), func(piece string) bool { return calm[piece] })
			if !regexp.MustCompile(p.says).MatchString(strings.Join(told, " ")) {
				wrong[surface] = fmt.Sprintf("does not say %q: %q", p.says, told)
			} else if said := regexp.MustCompile(cmp.Or(p.never, `^$`)).FindString(strings.Join(all, " ")); said != "" {
				wrong[surface] = fmt.Sprintf("says %q beside %s", said, p.name)
			}
		}
	}
	return wrong
}

// A surface that contradicts the tables contradicts the others.
func TestStates_areToldAlikeEverywhere(t *testing.T) {
	t.Parallel()
	h := newTheatre(t, "sqlite")
	told := func(t *testing.T, planted ...planted) {
		t.Parallel()
		wrong := h.scene(t).disagree(planted...)
		for _, p := range planted {
			for _, surface := range strings.Fields(p.unlike) {
				must.Hold(t, len(planted) > 1 || wrong[surface] != "", "%s tells it now: take it from the list", surface)
				delete(wrong, surface)
			}
		}
		for surface, why := range wrong {
			t.Errorf("%s %s", surface, why)
		}
	}
	for _, p := range states {
		t.Run(p.name, func(t *testing.T) { told(t, p) })
	}
	drawn := map[[2]string]bool{ // and pairs that do not stand beside each other
		{"behind", "paused projection"}:                 true, // a pause for all takes with it what is behind
		{"failing", "no worker"}:                        true, // nobody applies what waits, which is worse than either
		{"paused projection", "paused projection here"}: true, // which is refused
		{"rejected rows", "foreign source"}:             true, // the same source
		{"unread source", "source in error"}:            true, // which has all sources read
		{"paused projection", "run in the way"}:         true, // likewise
		{"run in the way", "paused projection"}:         true,
		{"no worker", "row lost behind a failed one"}:   true,
		{"no worker", "worker in shadow mode"}:          true, // a mode is that of the workers
		{"no worker", "inline mode"}:                    true, // which needs none
		{"full disk", "shadow mode"}:                    true, // a worker that applies meets it
		{"full disk", "worker in shadow mode"}:          true,
		{"full disk", "inline mode"}:                    true,
		{"table dropped", "shadow mode"}:                true,
		{"table dropped", "worker in shadow mode"}:      true,
		{"table dropped", "inline mode"}:                true,
		{"shadow mode", "worker in shadow mode"}:        true, // one mode at a time
		{"shadow mode", "inline mode"}:                  true,
		{"worker in shadow mode", "inline mode"}:        true,
	}
	for range size.Of(3, 20, 300) {
		pair := []planted{states[1+rand.IntN(len(states)-1)], states[1+rand.IntN(len(states)-1)]}
		slices.SortFunc(pair, func(a, b planted) int { return cmp.Compare(a.order(), b.order()) })
		names := [2]string{pair[0].name, pair[1].name}
		if ofOne := pair[0].page == pair[1].page; !ofOne && !drawn[names] && !pair[0].alone && !pair[1].alone {
			t.Run(strings.Join(names[:], " and "), func(t *testing.T) { told(t, pair...) })
		}
		drawn[names] = true
	}
}

// order is when a state is planted beside another one: what keeps events from being applied comes last.
func (p planted) order() int {
	late := strings.Count(p.name, "paused") + 2*strings.Count(p.name, "mode")
	return slices.IndexFunc(states, func(other planted) bool { return other.name == p.name }) + len(states)*late
}
