package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// revenueFile is a projection that adds to a total what a sale with a rebate has earned.
func revenueFile(earned string) map[string]string {
	return map[string]string{"revenue.sql": `
-- projection: revenue
-- tables: revenue

-- schema
create table revenue (campaign_id text not null, item text not null, total bigint not null, primary key (campaign_id, item));

-- on: sold
insert into revenue (campaign_id, item, total) values (:campaign_id, :payload.item!, cast(:payload.price! as bigint))
on conflict (campaign_id, item) do update set total = revenue.total + excluded.total;

-- on: sold.rebated
insert into revenue (campaign_id, item, total) values (:campaign_id, :payload.item!, ` + earned + `)
on conflict (campaign_id, item) do update set total = revenue.total + excluded.total;
`}
}

// Wherever a replay is shown of rows that another version built, both versions are named, and no more is
// offered to be rebuilt than differs.
func TestReplay_ofRowsThatAnotherVersionBuiltNamesBothEverywhere(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	flags := writeProjections(t, revenueFile("cast(:payload.price! as bigint)"))
	s := start(t, d, flags...)
	sold := func(kind string) event {
		return event{EventType: kind, Payload: map[string]any{"item": "jar", "price": 10}}
	}
	const differing, campaigns = 12, 14
	name := func(i int) string { return fmt.Sprintf("c-%02d", i) }
	for i := 1; i <= campaigns; i++ {
		kind := "sold"
		if i <= differing {
			kind = "sold.rebated"
		}
		appendTo(t, s, "", name(i), []event{sold("sold"), sold(kind)})
	}
	s.awaitSettled(t)
	built := versionOf(t, s)
	s.stop(t)
	file := revenueFile("cast(:payload.price! as bigint) * 7")
	rewrite(t, flags[1], file)
	s = start(t, d, flags...)
	loaded := versionOf(t, s)
	s.post(t, http.StatusOK, "/api/v1/campaigns/c-01/pause", map[string]any{"reason": "inspection"})
	appendTo(t, s, "", "c-01", []event{sold("sold.rebated")})

	verify := awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "verify", "all_campaigns": true, "reason": "a deploy"}).ID)
	var rehearsal runDoc
	s.post(t, http.StatusAccepted, "/api/v1/rehearsals", map[string]any{"files": []map[string]string{{"name": "revenue.sql", "text": revenueFile("cast(:payload.price! as bigint)")["revenue.sql"]}}}).decode(t, &rehearsal)
	rehearsal = awaitEnd(t, s, rehearsal.ID)

	var m struct {
		Tables []struct{ Rows []struct{ Row string } }
	}
	s.get(t, "/api/v1/campaigns/c-01/read-model", &m)
	cell := "?" + url.Values{"row": {m.Tables[0].Rows[0].Row}, "column": {"total"}}.Encode()
	names := func(what, text string) {
		t.Helper()
		for _, version := range []string{built, loaded} {
			must.Hold(t, strings.Contains(text, version), "%s does not name version %s:\n%s", what, version, tail(text, 4000))
		}
	}
	for _, path := range []string{"/campaigns/c-01/read-model", "/campaigns/c-01/read-model?seq=1", "/campaigns/c-01/read-model/cell" + cell, "/campaigns/c-01/events/2?tab=rows", "/rows/c-01/3/dry-run",
		"/campaigns/c-01", "/projections", "/projections/revenue", "/", "/runs/new?kind=rebuild&all=1", fmt.Sprintf("/runs/%d", verify.ID), fmt.Sprintf("/runs/%d/results/c-01", verify.ID),
		fmt.Sprintf("/runs/%d", rehearsal.ID), fmt.Sprintf("/runs/%d/results/c-01", rehearsal.ID), fmt.Sprintf("/runs/%d/results/c-03", rehearsal.ID),
		"/api/v1/campaigns/c-01/read-model", "/api/v1/campaigns/c-01/read-model/cell" + cell, "/api/v1/campaigns/c-01/events/2/changes", "/api/v1/rows/c-01/3/dry-run",
		"/api/v1/campaigns/c-01/projections", "/api/v1/projections", fmt.Sprintf("/api/v1/runs/%d/results", verify.ID), fmt.Sprintf("/api/v1/runs/%d/results/c-01", verify.ID), fmt.Sprintf("/api/v1/runs/%d/results/c-03", rehearsal.ID)} {
		a := do(t, s, http.MethodGet, path, nil)
		must.Equal(t, a.status, http.StatusOK, path, "is", a.body)
		names(path, string(a.body))
	}
	for _, c := range []string{"campaigns rows c-01", "report", "campaigns list --state drifted", "verify", fmt.Sprintf("runs show %d", verify.ID), fmt.Sprintf("runs show %d --json", verify.ID), fmt.Sprintf("runs show %d", rehearsal.ID),
		"runs start rebuild --all --dry-run", "requeue c-01 3 --dry-run", "check", "projections status"} {
		r := command(t, d, nil, append(strings.Fields(c), flags...)...)
		names("outboxweb "+c, r.stdout+r.stderr)
		if c == "verify" {
			said, offered, _ := strings.Cut(r.stdout, "outboxweb runs start rebuild")
			names("before the rebuild, outboxweb verify", said)
			line, _, _ := strings.Cut(offered, "\n")
			must.Hold(t, strings.Count(line, " --campaign=") == differing && !strings.Contains(line, "--all"), "verify offers to rebuild%s", line)
		}
	}
	page := string(do(t, s, http.MethodGet, fmt.Sprintf("/runs/%d", verify.ID), nil).body)
	said, _, offered := strings.Cut(page, `data-testid="run-rebuild">Rebuild 12 drifted campaigns…`)
	names("before the rebuild, the page of the run", said)
	must.Hold(t, offered, "the page of the run offers something else:\n%s", page)
	page = string(do(t, s, http.MethodGet, fmt.Sprintf("/runs/new?drifted=%d", verify.ID), nil).body)
	must.Hold(t, strings.Contains(page, "into 1 projection and replaces") && strings.Contains(page, "of 12 campaigns"), "the page of the rebuild is\n%s", page)
}

// versionOf is the beginning of the hash of the only loaded projection.
func versionOf(t *testing.T, s *server) string {
	t.Helper()
	var list struct{ Items []struct{ Version string } }
	s.get(t, "/api/v1/projections", &list)
	i := slices.IndexFunc(list.Items, func(p struct{ Version string }) bool { return p.Version != "" })
	return list.Items[i].Version[:12]
}
