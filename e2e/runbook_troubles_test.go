package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// The troubles that sections of the runbook are followed in.

// startWith starts the service and has it apply events of the campaign table.
func (o *onCall) startWith(events []event) {
	o.start()
	applied(o.t, o.s, "table", events)
}

func (o *onCall) morning() { o.startWith(seats("ana", "ben")) }

func (o *onCall) lag() {
	o.serve = append(o.serve, "--max-attempts", "8", "--retry-base", "1h", "--retry-max", "1h")
	o.start()
	appendTo(o.t, o.s, "", "table", seats("ana", "ana", "cem"))
	awaitCounts(o.t, o.s, "", 1, 1, 0)
	o.env["SEQ"] = "2"
	o.last()
	o.before["Retry a failed head at once"] = func() { change(o.t, o.d.projections(), freeSeat, "table", "ana") }
}

func (o *onCall) dead() {
	o.start()
	for _, table := range []string{"table", "garden", "attic"} {
		appendTo(o.t, o.s, "", table, seats("ana", "ana", "cem"))
	}
	odd := seats("ana", "ben", "cem")
	delete(odd[1].Payload, "seat")
	appendTo(o.t, o.s, "", "odd", odd)
	awaitCounts(o.t, o.s, "", 4, 0, 4)
	for _, g := range o.s.items(o.t, "/api/v1/failures/groups") {
		if g.Dead == 3 {
			o.env["F"] = g.Fingerprint
		}
	}
	o.env["C"], o.env["SEQ"] = "odd", "2"
	o.last()
	o.before["Requeue by canary"] = func() {
		for _, table := range []string{"table", "garden", "attic"} {
			change(o.t, o.d.projections(), freeSeat, table, "ana")
		}
	}
}

func (o *onCall) hang() {
	o.startWith(seats("ana", "ben"))
	o.systemctl("stop outboxweb")
	o.start("--worker=false")
	appendTo(o.t, o.s, "", "table", []event{taken("seat-7", "cem")})
	o.last()
}

func (o *onCall) full() {
	if o.d.url == "" {
		o.d.dir = tinyDisk(o.t)
	}
	o.env["DATA"] = o.d.dir
	o.startWith(seats("ana", "ben"))
	if o.d.url != "" {
		return // the rest cannot be simulated; the steps are executed nonetheless
	}
	ballast := fill(o.t, o.d.dir)
	o.s.awaitAnswer(o.t, http.MethodPost, "/api/v1/campaigns/table/events", taken("seat-8", ""), http.StatusInsufficientStorage, "")
	o.before["It continues by itself"] = func() { must.OK(o.t, os.Remove(ballast)) }
}

func (o *onCall) deleted() {
	o.start()
	if o.d.url != "" {
		return // a server's files are its own; nothing is to be done there
	}
	o.env["PID"] = strconv.Itoa(o.s.cmd.Process.Pid)
	applied(o.t, o.s, "table", seats("ana", "ben"))
	must.OK(o.t, os.Remove(filepath.Join(o.d.dir, "journal.db")))
	o.s.awaitReady(o.t, http.StatusServiceUnavailable, "was deleted or moved away")
}

// damaged has a backup, and since then an unreadable page in the journal.
func (o *onCall) damaged() {
	o.start()
	if o.d.url != "" {
		return // a server's files are its own; nothing is to be done there
	}
	applied(o.t, o.s, "table", seats("ana", "ben"))
	mustCommand(o.t, o.d, nil, "backup", o.env["BACKUP"], "--projections", o.files)
	const name = "zoe on a page of her own"
	applied(o.t, o.s, "damaged", seats(strings.Repeat(name, 120)))
	o.s.stop(o.t)
	file := filepath.Join(o.d.dir, "journal.db")
	data := must.Get(os.ReadFile(file)).Or(o.t)
	at := bytes.Index(data, []byte(name)) / 4096 * 4096
	copy(data[at:at+4096], make([]byte, 4096))
	must.OK(o.t, os.WriteFile(file, data, 0o600))
	o.start()
}

// restored has a journal that is older than its projections.
func (o *onCall) restored() {
	o.start()
	monday, tuesday := filepath.Join(o.t.TempDir(), "monday"), filepath.Join(o.t.TempDir(), "tuesday")
	backup := func(dir string) {
		o.s.awaitSettled(o.t)
		mustCommand(o.t, o.d, nil, "backup", dir, "--projections", o.files)
	}
	appendTo(o.t, o.s, "", "table", seats("ana", "ben"))
	backup(monday)
	appendTo(o.t, o.s, "", "table", []event{taken("seat-7", "cem")})
	appendTo(o.t, o.s, "", "late", seats("ana"))
	backup(tuesday)
	o.s.stop(o.t)
	mixed := o.t.TempDir()
	for from, pattern := range map[string]string{monday: "journal.*", tuesday: "projections.*"} {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		must.Need(o.t, err == nil && len(found) == 1, "%s in %s: %v, %v", pattern, from, found, err)
		must.OK(o.t, os.Rename(found[0], filepath.Join(mixed, filepath.Base(found[0]))))
	}
	if o.d.url == "" {
		o.d = newDatabases(o.t)
	} else {
		o.d = newPostgres(o.t)
	}
	mustCommand(o.t, o.d, nil, "restore", mixed, "--projections", o.files)
	o.env["DATA"], o.env["PG"] = o.d.dir, o.d.url
	o.start()
	o.last()
}

// wrong has a read model that was changed by hand, and an event that was
// skipped. For the steps about it the journal is changed, too.
func (o *onCall) wrong() {
	o.start()
	appendTo(o.t, o.s, "", "table", seats("ana", "ben"))
	appendTo(o.t, o.s, "", "odd", seats("ana", "ana", "cem"))
	awaitCounts(o.t, o.s, "", 1, 0, 1)
	o.s.post(o.t, http.StatusOK, "/api/v1/rows/odd/2/skip", map[string]any{"reason": "sits already", "confirm": "skip odd 2"})
	o.s.awaitSettled(o.t)
	change(o.t, o.d.projections(), "update seats set user_id = $1 where user_id = $2", "eve", "ben")
	copied := newDatabases(o.t)
	if o.d.url != "" {
		copied = newPostgres(o.t)
	}
	o.env["COPY_JOURNAL"], o.env["COPY_PROJECTIONS"] = copied.flags()[1], copied.flags()[3]
	var before string
	o.before["When a campaign cannot be verified"] = func() {
		mustCommand(o.t, o.d, nil, "backup", o.env["BACKUP"], "--projections", o.files)
		before = o.alter()
		o.failVerify("2")
	}
	o.before["Rebuild the campaign"] = func() { o.setPayload(before) }
}

func (o *onCall) failedRun() {
	o.startWith(seats("ana", "ben"))
	before := o.alter()
	o.failVerify("1")
	o.before["Resume the run"] = func() { o.setPayload(before) }
}

func (o *onCall) alter() (before string) {
	before = scalar[string](o.t, o.d.journal(), firstPayload)
	db := connect(o.t, o.d.journal(), "_txlock=immediate")
	defer db.Close()
	drop := "drop trigger events_refuse_update"
	if o.d.url != "" {
		drop += " on events"
	}
	must.Get(db.Exec(drop)).Or(o.t)
	o.setPayload(`{"seat": "seat-99", "user": "mallory"}`)
	return before
}

const firstPayload = "select payload from events where campaign_id = 'table' and seq = 1"

func (o *onCall) setPayload(payload string) {
	change(o.t, o.d.journal(), "update events set payload = $1 where campaign_id = 'table' and seq = 1", payload)
}

// failVerify starts a verify, which is to be the run with this id, and waits until it has failed.
func (o *onCall) failVerify(id string) {
	o.s.post(o.t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": "verify", "campaign_id": "table", "reason": "is it right"})
	o.s.awaitAnswer(o.t, http.MethodGet, "/api/v1/runs/"+id, nil, http.StatusOK, `"status":"failed"`)
}

// quarantined has a quarantined projection, and files with which it would not fail.
func (o *onCall) quarantined() {
	rewrite(o.t, o.files, clubProjections(""))
	rewrite(o.t, o.env["FIXED"], clubProjections(countBadge))
	o.startWith([]event{badge("ana"), taken("seat-1", "ana"), badge("ana"), badge("ben")})
}

func (o *onCall) pausing() {
	rewrite(o.t, o.files, clubProjections(""))
	o.startWith([]event{badge("ana"), taken("seat-1", "ana")})
}

// newFile has a projection that is to be replaced by another version.
func (o *onCall) newFile() {
	rewrite(o.t, o.files, clubProjections(countBadge))
	rewrite(o.t, o.env["FIXED"], clubProjections(strings.Replace(countBadge, "+ 1", "+ 10", 1)))
	o.startWith([]event{badge("ana"), badge("ana"), taken("seat-1", "ana")})
}

// clubProjections are two read models that fail on some journals: seats blocks its campaign, badges is quarantined
// unless given another statement.
func clubProjections(secondBadge string) map[string]string {
	return map[string]string{"seats.sql": seatProjections["seats.sql"], "badges.sql": `
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

const countBadge = "on conflict (campaign_id, user_id) do update set given = badges.given + 1"

func badge(user string) event {
	return event{EventType: "badge.given", Payload: map[string]any{"user": user}}
}

func rewrite(t *testing.T, dir string, files map[string]string) {
	for name, text := range files {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}
