package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// A deploy that makes wrong rows: the finding says which version made what differs and leads to a comparison with
// the version before, by which most campaigns are right; its page lists what it made, and once the right file is
// loaded again, the comparison offers to rebuild what is wrong by it, and no more.
func TestVersions_leadFromTheDeployToTheCampaignsThatItMadeWrong(t *testing.T) {
	t.Parallel()
	const all, wrong = 7, 3
	d := newDatabases(t)
	deploy := func(name string) (*server, []string) {
		loaded := writeProjections(t, guestProjections(name))
		return start(t, d, slices.Concat(quickDeath, loaded)...), loaded
	}
	s, _ := deploy(":payload.name!")
	for i := range all {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), []event{guest("guest.came"), guest("guest.came")})
	}
	s.awaitSettled(t)
	right := versionOf(t, s)
	s.stop(t)

	s, loaded := deploy("upper(:payload.name!)")
	for i := range wrong {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), []event{guest("guest.came")})
	}
	s.awaitSettled(t)
	bad := versionOf(t, s)
	awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "verify", "all_campaigns": true}).ID)
	short := func(version string) string { return version[:12] }
	compare := fmt.Sprintf("Compare with version 1 (%s)…", short(right))
	s.shows(t, "/", "Live rows of 7 campaigns differ from the journal",
		fmt.Sprintf("4 of the campaigns that differ were built by version 1 (%s), 3 by versions 1 (%s) and 2 (%s).", short(right), short(right), short(bad)), compare)

	s.shows(t, "/projections/guests/versions/"+bad, "Version 2 ("+short(bad), "c-00", "c-02", "3", "Compare these 3 campaigns with version 1")
	s.shows(t, "/handover", "Deployed: version 2 ("+short(bad))
	must.Hold(t, !strings.Contains(string(fetch(t, s, "/projections/guests/versions/"+bad).body), "c-03"), "the new version is said to have built c-03")
	var built struct {
		Items []struct {
			CampaignID string `json:"campaign_id"`
			Ranges     []struct{ FirstSeq, LastSeq int64 }
		}
	}
	s.get(t, "/api/v1/projections/guests/versions/1/campaigns", &built)
	must.Equal(t, len(built.Items), all, "campaigns with rows of version 1")
	out := mustCommand(t, d, nil, append([]string{"projections", "status", "guests", "--built-by", short(bad)}, loaded...)...)
	must.Hold(t, strings.Count(out, "c-0") == wrong, "the command says %s", out)

	page := string(fetch(t, s, "/").body)
	must.Hold(t, strings.Contains(page, "with_version="+url.QueryEscape(right)), "the finding does not lead to a comparison:\n%s", tail(page, 3000))
	run := awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "verify", "all_campaigns": true, "projections": []string{"guests"}, "with_version": short(right)}).ID)
	must.Equal(t, run.Counts.Drifted, int64(wrong), "campaigns that differ from version 1")
	compared := fmt.Sprintf("/runs/%d", run.ID)
	s.shows(t, "/", fmt.Sprintf("in run %d: 4 right, 3 differ.", run.ID), "Show what differs from version 1")
	s.shows(t, compared, "load it again, then rebuild here what differs from it")
	must.Hold(t, !strings.Contains(string(fetch(t, s, compared).body), "run-rebuild"), "a rebuild is offered with the version that is loaded, not with the one that is right")
	s.stop(t)

	s, _ = deploy(":payload.name!")
	s.shows(t, compared, "Rebuild 3 drifted campaigns")
	rebuilt := awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "rebuild", "campaign_ids": []string{"c-00", "c-01", "c-02"}, "projections": []string{"guests"}}).ID)
	must.Equal(t, rebuilt.Counts.Drifted, int64(wrong), "campaigns that the rebuild made right")
	after := awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "verify", "all_campaigns": true}).ID)
	must.Equal(t, after.Verdict, "match", "the rows once rebuilt")
	s.shows(t, "/projections/guests/versions/"+bad, "It built no rows that are still there")
}

// What is appended is printed by a command that follows, in order, and stands on an open page of events.
func TestEvents_followWhatIsAppended(t *testing.T) {
	t.Parallel()
	s, d := startSeats(t)
	applied(t, s, "a", seats("ana", "bo"))
	follow := program(d, append([]string{"events", "--follow", "--campaign", "a", "--json"}, d.flags()...)...)
	out := must.Get(follow.StdoutPipe()).Or(t)
	must.OK(t, follow.Start())
	t.Cleanup(func() { _ = follow.Process.Kill(); _ = follow.Wait() })
	lines := json.NewDecoder(out)
	next := func() (e struct{ Seq int64 }) {
		must.OK(t, lines.Decode(&e))
		return e
	}
	must.Equal(t, []int64{next().Seq, next().Seq}, []int64{1, 2}, "the newest events")
	appendTo(t, s, "", "b", seats("ana"))
	appendTo(t, s, "", "a", []event{taken("seat-9", "cem")})
	must.Equal(t, next().Seq, int64(3), "the event appended meanwhile")
	page := string(fetch(t, s, "/events?campaign=a").body)
	must.Hold(t, strings.Contains(page, "data-live") && !strings.Contains(string(fetch(t, s, "/events?q=ana").body), "data-live"), "a list of the newest events that an index finds, and no other, is live")
}
