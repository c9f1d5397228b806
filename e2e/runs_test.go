package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/corpus"
)

// runDoc is what the tests read of a run.
type runDoc struct {
	ID          int64
	Kind        string
	Status      string
	Verdict     string
	Error       string
	Seq         int64
	Attempts    int64
	Events      struct{ Done, Total int64 }
	Campaigns   struct{ Done, Total int64 }
	Counts      struct{ Matched, Drifted, Replayed, Failed int64 }
	Digests     map[string]string
	Before      map[string]string `json:"digests_before"`
	CancelledBy string            `json:"cancelled_by"`
	Results     []resultDoc       // of the command line: those that drifted or failed
}

// resultDoc is what became of a campaign of a run.
type resultDoc struct {
	CampaignID  string `json:"campaign_id"`
	Outcome     string
	Seq         int64
	Error       string
	Projections []struct {
		Projection string
		Verdict    string
		Seq        int64
		Generation int64
		Error      string
		ErrorSeq   int64 `json:"error_seq"`
		Comparison *struct {
			Added, Changed, Removed int64
			FirstSeq                int64 `json:"first_seq"`
			Samples                 []struct {
				Table, Kind string
				Fields      []struct {
					Name           string
					Live, Expected any
				}
			}
		}
	}
}

func (r runDoc) active() bool {
	return r.Status == "queued" || r.Status == "running" || r.Status == "cancelling"
}

// rebuildPhrase confirms a rebuild of all campaigns.
const rebuildPhrase = "rebuild all campaigns"

// startRun starts a run over HTTP, which must be accepted.
func startRun(t *testing.T, s *server, body map[string]any) (r runDoc) {
	t.Helper()
	body["confirm"] = rebuildPhrase
	s.post(t, http.StatusAccepted, "/api/v1/runs", body).decode(t, &r)
	return r
}

// awaitRunAt waits until a run is as wanted.
func awaitRunAt(t *testing.T, s *server, id int64, what string, wanted func(runDoc) bool) (r runDoc) {
	t.Helper()
	eventually(t, 2*patience, fmt.Sprintf("run %d %s", id, what), func() (bool, string) {
		r = runDoc{}
		s.get(t, fmt.Sprintf("/api/v1/runs/%d", id), &r)
		return wanted(r), fmt.Sprintf("%+v", r)
	})
	return r
}

// awaitEnd waits until a run has ended.
func awaitEnd(t *testing.T, s *server, id int64) runDoc {
	t.Helper()
	return awaitRunAt(t, s, id, "ends", func(r runDoc) bool { return !r.active() })
}

// awaitShare waits until a part of a run's events is done; it must not be over.
func awaitShare(t *testing.T, s *server, id int64, share float64) {
	t.Helper()
	r := awaitRunAt(t, s, id, fmt.Sprintf("is %.0f %% done", 100*share), func(r runDoc) bool {
		return !r.active() || r.Events.Total > 0 && float64(r.Events.Done) >= share*float64(r.Events.Total)
	})
	if r.Status != "running" {
		t.Fatalf("the run is over too early for the test: %+v", r)
	}
}

// verified runs `verify`, which must exit with code, and returns its document.
func verified(t *testing.T, d databases, code int, flags ...string) (r runDoc) {
	t.Helper()
	ended := command(t, d, nil, append([]string{"verify", "--json"}, flags...)...)
	if err := json.Unmarshal([]byte(ended.stdout), &r); err != nil || ended.code != code || r.Status != "completed" {
		t.Fatalf("verify: exit code %d, want %d, %v\n%s%s", ended.code, code, err, tail(ended.stdout, 4000), ended.stderr)
	}
	return r
}

// A field that was changed by hand in the read models of a journal is found, with the event that
// had set it, and fixed by a rebuild of its campaign.
func TestVerify_findsAPlantedField(t *testing.T) {
	t.Parallel()
	corpus.EachJournal(t, corpus.Heavy, func(t *testing.T, j corpus.Journal) {
		t.Parallel()
		eachDatabase(t, func(t *testing.T, d databases) { findPlantedField(t, d, j) })
	})
}

func findPlantedField(t *testing.T, d databases, j corpus.Journal) {
	appendJournal(t, d, j, nil)
	s := start(t, d, applyBriefly...)
	awaitJournal(t, s, j)
	if r := verified(t, d, 0); r.Verdict != "match" || r.Counts.Matched != int64(j.Campaigns) || r.Counts.Failed > 0 {
		t.Errorf("before the planting: %+v", r)
	}

	campaign, character, seq := lastingName(t, d, j)
	const plant = "update characters set name = $1 where campaign_id = $2 and id = $3"
	change(t, d.projections(), plant, "Mallory", campaign, character)
	r := verified(t, d, 1)
	if r.Verdict != "drift" || r.Counts.Drifted != 1 || len(r.Results) != 1 || r.Results[0].CampaignID != campaign {
		t.Fatalf("after the planting: %+v", r)
	}
	for _, p := range r.Results[0].Projections {
		if p.Projection != "campaigns" {
			continue
		}
		c := p.Comparison
		if c == nil || c.Added != 0 || c.Changed != 1 || c.Removed != 0 || c.FirstSeq != seq {
			t.Fatalf("the comparison is %+v, want one changed row from event %d on", c, seq)
		}
		var whole resultDoc
		s.get(t, fmt.Sprintf("/api/v1/runs/%d/results/%s", r.ID, campaign), &whole)
		row := whole.Projections[0].Comparison.Samples[0]
		if row.Table != "characters" || row.Kind != "changed" || len(row.Fields) != 1 || row.Fields[0].Name != "name" || row.Fields[0].Live != "Mallory" {
			t.Errorf("the row is %+v", row)
		}
	}
	text := command(t, d, nil, "verify")
	if text.code != 1 || !shown(text.stdout, fmt.Sprintf("1 of %d campaigns differ…FIRST DIVERGENCE…%s…campaigns…drift…0…1…0…%d", j.Campaigns, campaign, seq)) {
		t.Errorf("verify, exit %d, printed %s", text.code, text.stdout)
	}

	mustCommand(t, d, nil, "runs", "start", "rebuild", "--campaign", campaign, "--wait", "--reason", "Mallory was planted")
	if r := verified(t, d, 0); r.Verdict != "match" {
		t.Errorf("after the rebuild: %+v", r)
	}
	compareExpected(t, d, j)
	deadHead(t, s, j)
	checkJournal(t, d, j, nil)
}

// lastingName finds the character, of those whose name was set by the event that
// created it and by no later one, with the most events before it.
func lastingName(t *testing.T, d databases, j corpus.Journal) (campaign, character string, seq int64) {
	t.Helper()
	db := openReader(t, d.journal())
	err := db.QueryRow(`
select campaign_id, entity_id, seq
from events e
where event_type = 'character.created'
  and campaign_id <> $1
  and not exists (
    select 1 from events l
    where l.campaign_id = e.campaign_id and l.seq > e.seq and l.entity_id = e.entity_id and l.event_type like 'character.%'
  )
order by seq desc, campaign_id
limit 1`, j.Poisoned).Scan(&campaign, &character, &seq)
	if err != nil {
		t.Fatal(err)
	}
	if seq < 3 {
		t.Fatalf("no character was created later than as event %d", seq)
	}
	return campaign, character, seq
}

// ledgerProjections are a tally and a list of what was applied. Their rows are a
// function of the events alone, and an event that is applied twice fails.
var ledgerProjections = map[string]string{
	"tally.sql": historyProjections["tally.sql"],
	"ledger.sql": `
-- projection: ledger
-- tables: ledger

-- schema
create table ledger (
  campaign_id text not null,
  seq bigint not null,
  n bigint not null,
  primary key (campaign_id, seq)
);

-- on: *
insert into ledger (campaign_id, seq, n) values (:campaign_id, :seq, :payload.n!);
`}

// ledgerReader reads the ledger again and again, directly from the database, as the readers of read
// models do. A campaign with a gap or with fewer rows than before is an error.
type ledgerReader struct {
	stop    context.CancelFunc
	looking sync.WaitGroup

	looks int
	wrong []string
}

func readLedger(t *testing.T, d databases) *ledgerReader {
	t.Helper()
	db := openReader(t, d.projections())
	ctx, stop := context.WithCancel(context.Background())
	r := &ledgerReader{stop: stop}
	seen := map[string]int64{}
	r.looking.Go(func() {
		for ctx.Err() == nil && len(r.wrong) < 10 {
			if err := r.look(ctx, db, seen); err != nil && ctx.Err() == nil {
				r.wrong = append(r.wrong, err.Error())
			}
			select { // a moment later it would see the same state
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		stop()
		r.looking.Wait()
	})
	return r
}

func (r *ledgerReader) look(ctx context.Context, db *sql.DB, seen map[string]int64) error {
	rows, err := db.QueryContext(ctx, "select campaign_id, count(*), max(seq) from ledger group by campaign_id")
	if err != nil {
		return err
	}
	defer rows.Close()
	now := map[string]int64{}
	for rows.Next() {
		var campaign string
		var n, last int64
		if err := rows.Scan(&campaign, &n, &last); err != nil {
			return err
		}
		if n != last {
			r.wrong = append(r.wrong, fmt.Sprintf("campaign %s had %d rows up to event %d", campaign, n, last))
		}
		now[campaign] = n
	}
	if err := rows.Err(); err != nil { // what was not read is not missing
		return err
	}
	for campaign, before := range seen {
		if now[campaign] < before {
			r.wrong = append(r.wrong, fmt.Sprintf("campaign %s had %d rows, and %d before", campaign, now[campaign], before))
		}
	}
	for campaign, n := range now {
		seen[campaign] = n
	}
	r.looks++
	return nil
}

// finish ends the reading and fails the test if something wrong was seen.
func (r *ledgerReader) finish(t *testing.T) {
	t.Helper()
	r.stop()
	r.looking.Wait()
	t.Logf("the ledger was read %d times", r.looks)
	if r.looks < 10 {
		t.Errorf("the ledger was read %d times, too few to tell", r.looks)
	}
	for _, wrong := range r.wrong {
		t.Error(wrong)
	}
}

// numberedJournal is campaigns × events for the ledger.
func numberedJournal(campaigns, events int) *bytes.Buffer {
	var text bytes.Buffer
	for n := range events {
		for c := range campaigns {
			fmt.Fprintf(&text, `{"campaign_id": "old-%02d", "event_id": "e-%d", "event_type": "load.made", "payload": {"n": %d}}`+"\n", c, n, n)
		}
	}
	return &text
}

// ledgerCampaigns are the campaigns of numberedJournal.
func ledgerCampaigns(campaigns int) (ids []string) {
	for c := range campaigns {
		ids = append(ids, fmt.Sprintf("old-%02d", c))
	}
	return ids
}

// While events keep coming and readers keep reading, one rebuild of everything is cancelled near 40
// %, and the process is killed at 70 % of another: no reader ever sees half a table, nothing is
// lost or applied twice, and the second rebuild completes in the next process.
func TestRebuild_cancelledAndKilled(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, d databases) {
		campaigns, events, rate := 50, int64(300), 4000
		if testing.Short() {
			campaigns, events, rate = 20, 60, 320
		}
		projections := writeProjections(t, ledgerProjections)
		serve := append([]string{"--lease", "2s", "--poll-interval", "100ms"}, projections...)
		mustCommand(t, d, numberedJournal(campaigns, int(events)), append([]string{"append", "-"}, projections...)...)
		s := start(t, d, serve...)
		s.awaitSettled(t)
		old := ledgerCampaigns(campaigns)
		want := digests(t, d, old[:5], projections)
		reader := readLedger(t, d)
		l := startLoad(t, 2, 4)
		l.campaigns = append(l.campaigns, old[0], old[campaigns-1])
		l.steady(50 * time.Millisecond)
		l.point(s)

		first := startRun(t, s, map[string]any{"kind": "rebuild", "all_campaigns": true, "rate": rate, "reason": "to be cancelled"})
		awaitShare(t, s, first.ID, 0.4)
		s.post(t, http.StatusOK, fmt.Sprintf("/api/v1/runs/%d/cancel", first.ID), map[string]any{"reason": "enough"})
		if r := awaitEnd(t, s, first.ID); r.Status != "cancelled" || r.CancelledBy == "" || r.Events.Done >= r.Events.Total || r.Counts.Failed+r.Counts.Drifted > 0 {
			t.Errorf("the cancelled run is %+v", r)
		}
		if diff := cmp.Diff(want[strings.Index(want, "old-01"):], digests(t, d, old[1:5], projections)[len("campaign "):]); diff != "" {
			t.Errorf("digests after the cancelled rebuild (-before +after):\n%s", diff)
		}
		verified(t, d, 0, projections...)

		second := startRun(t, s, map[string]any{"kind": "rebuild", "all_campaigns": true, "rate": rate, "reason": "to be killed"})
		awaitShare(t, s, second.ID, 0.7)
		finished := func() (all struct{ Items []map[string]any }) {
			s.get(t, fmt.Sprintf("/api/v1/runs/%d/results?limit=200", second.ID), &all)
			return all
		}
		before := finished().Items
		if len(before) < campaigns/3 {
			t.Errorf("%d of %d campaigns are finished after 70 %% of the events", len(before), campaigns)
		}
		s.kill()
		s = start(t, d, serve...)
		l.point(s)
		r := awaitEnd(t, s, second.ID)
		if r.Status == "interrupted" {
			mustCommand(t, d, nil, append([]string{"runs", "resume", fmt.Sprint(second.ID), "--wait"}, projections...)...)
			r = awaitEnd(t, s, second.ID)
		}
		if r.Status != "completed" || r.Attempts != 2 || r.Counts.Failed+r.Counts.Drifted > 0 || r.Campaigns.Done < int64(campaigns) || r.Events.Done < int64(campaigns)*events {
			t.Errorf("the run that was killed is %+v", r)
		}
		after := finished().Items
		again := slices.DeleteFunc(before, func(c map[string]any) bool {
			return slices.ContainsFunc(after, func(now map[string]any) bool { return cmp.Equal(c, now) })
		})
		if len(again) > 0 {
			t.Errorf("finished campaigns were done again: %v", again)
		}
		l.awaitProgress(t, 5)
		l.finish(t)
		s.awaitSettled(t)
		reader.finish(t)
		if r := verified(t, d, 0, projections...); r.Counts.Matched != r.Campaigns.Done {
			t.Errorf("verified %+v", r)
		}
		if n, m := scalar[int64](t, d.projections(), "select count(*) from ledger"), scalar[int64](t, d.journal(), "select count(*) from events"); n != m {
			t.Errorf("the ledger has %d rows, the journal %d events", n, m)
		}
		var cursors struct {
			Items []struct {
				Generation int64
				State      string
			}
		}
		s.get(t, "/api/v1/campaigns/"+old[1]+"/projections", &cursors)
		if len(cursors.Items) != 2 || cursors.Items[0].Generation < 2 || cursors.Items[0].State != "live" {
			t.Errorf("the cursors are %+v", cursors)
		}
		verifyNothingHeld(t, d)
		checkClean(t, d, projections...)
	})
}

// Of fifty requests for the same run at once one succeeds, and the others are refused with the
// blocking run.
func TestRuns_fiftyAtOnce(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, d databases) {
		// Without a worker no run ends while the others are still being requested.
		flags := append(writeProjections(t, seatProjections), "--worker=false")
		servers := []*server{start(t, d, flags...), start(t, d, flags...)}
		appendTo(t, servers[0], "", "table", seats("ana", "ben"))
		const clients = 50
		answers := make(chan answer, clients)
		var ready, begin sync.WaitGroup
		begin.Add(1)
		for i := range clients {
			ready.Add(1)
			go func() {
				kind := []string{"verify", "rebuild", "replay"}[i%3]
				scope := map[string]any{"kind": kind, "all_campaigns": true, "reason": "one of fifty", "confirm": rebuildPhrase}
				if kind != "rebuild" {
					delete(scope, "all_campaigns")
					scope["campaign_id"] = "table"
				}
				ready.Done()
				begin.Wait()
				a, err := servers[i%2].do(t.Context(), http.MethodPost, "/api/v1/runs", scope)
				if err != nil {
					t.Error(err)
				}
				answers <- a
			}()
		}
		ready.Wait()
		begin.Done()
		byStatus := map[int]int{}
		var details []string
		for range clients {
			a := <-answers
			byStatus[a.status]++
			if a.status == http.StatusConflict {
				details = append(details, refused(t, a, http.StatusConflict).Detail)
			}
		}
		if diff := cmp.Diff(map[int]int{http.StatusAccepted: 1, http.StatusConflict: clients - 1}, byStatus); diff != "" {
			t.Errorf("the answers (-want +got):\n%s", diff)
		}
		if i := slices.IndexFunc(details, func(text string) bool { return !strings.Contains(text, "blocked by run 1") }); i >= 0 {
			t.Errorf("an answer does not name the run: %s", details[i])
		}
		if n := scalar[int64](t, d.journal(), "select count(*) from runs"); n != 1 {
			t.Errorf("%d runs were written", n)
		}
	})
}
