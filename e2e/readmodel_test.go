package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// hoard is a read model with secrets: one by its name, one by its form.
var hoard = map[string]string{"hoard.sql": `
-- projection: hoard
-- tables: hoard

-- schema
create table hoard (campaign_id text not null, name text not null, gold bigint not null, api_token text, note text,
  a_column_with_a_long_name_1 text, a_column_with_a_long_name_2 text, a_column_with_a_long_name_3 text, a_column_with_a_long_name_4 text, gold_again bigint, primary key (campaign_id, name));

-- on: found
insert into hoard (campaign_id, name, gold, gold_again, api_token, note) values (:campaign_id, :payload.name!, :payload.gold!, :payload.gold!, :payload.token, :payload.note)
on conflict (campaign_id, name) do update set gold = excluded.gold, gold_again = excluded.gold_again, api_token = excluded.api_token, note = excluded.note;

-- on: lost
delete from hoard where campaign_id = :campaign_id and name = :payload.name!;
`}

func foundGold(name string, gold int, token, note string) event {
	return event{EventType: "found", Payload: map[string]any{"name": name, "gold": gold, "token": token, "note": note}}
}

func hoardEvents() []event {
	return []event{
		foundGold("chest", 5, "tok-first-1234", ""), foundGold("urn", 1, "tok-other-5678", "the key is sk_live_abcdef0123456789"),
		foundGold("chest", 9, "tok-second-"+strings.Repeat("9", 900), "sk_live_zyxwvu9876543210"), {EventType: "lost", Payload: map[string]any{"name": "urn"}},
		foundGold("vase", 2, "", strings.Repeat("a long note ", 400)),
	}
}

// roads is a read model whose rows are the nodes and edges of a graph.
var roads = map[string]string{"roads.sql": `
-- projection: roads
-- tables: towns, roads
-- graph: nodes=towns(id,name) edges=roads(a,b)

-- schema
create table towns (campaign_id text not null, id bigint not null, name text not null, primary key (campaign_id, id));
create table roads (campaign_id text not null, a bigint not null, b bigint not null, primary key (campaign_id, a, b));

-- on: founded
insert into towns (campaign_id, id, name) values (:campaign_id, :payload.id!, :payload.name!);

-- on: built
insert into roads (campaign_id, a, b) values (:campaign_id, :payload.a!, :payload.b!);

-- on: fallen
delete from roads where campaign_id = :campaign_id and (a = cast(:payload.id! as bigint) or b = cast(:payload.id! as bigint));
delete from towns where campaign_id = :campaign_id and id = cast(:payload.id! as bigint);
`}

func founded(id int, name string) event {
	return event{EventType: "founded", Payload: map[string]any{"id": id, "name": name}}
}

// saysWhatIsPaused pauses the projection: rows are replayed from the journal, and readers may see older ones.
func saysWhatIsPaused(t *testing.T, s *server) {
	s.post(t, http.StatusOK, "/api/v1/projections/hoard/pause", struct{}{})
	applied(t, s, "c-1", []event{foundGold("chest", 77, "", "")})
	const held, gold = "hoard is paused for all campaigns, 1 event behind", ">77<"
	for path, shows := range map[string]struct{ held, gold bool }{
		"/campaigns/c-1/read-model":        {true, true},
		"/campaigns/c-1/read-model?seq=5":  {false, false},
		"/campaigns/c-1/read-model?live=1": {true, false},
		"/campaigns/c-1/events/6?tab=rows": {true, true},
	} {
		body := string(fetch(t, s, path).body)
		must.Hold(t, strings.Contains(body, held) == shows.held && strings.Contains(body, gold) == shows.gold, "%s does not show what readers see: %s", path, body)
	}
}

// varying are times, identifiers, ports and temporary directories, in which any three digits can be.
var varying = regexp.MustCompile(`\d\d:\d\d:\d\d[.,]?\d*|[0-9a-f]{8}-[0-9a-f-]{27}|/static/[0-9a-f]{16}|127\.0\.0\.1:\d+|[^ "'=]*/Test[^/]+/\d+`)

// Secrets are hidden in rows, differences, cells and commands, and nothing tells their length. What a paused projection
// lacks is told.
func TestReadModel_hidesSecretsAndTellsOfPauses(t *testing.T) {
	t.Parallel()
	d, flags := newDatabases(t), writeProjections(t, hoard)
	s := start(t, d, append([]string{"--poll-interval", "100ms"}, flags...)...)
	applied(t, s, "c-1", hoardEvents())
	var row struct {
		Changes []struct{ Rows []struct{ Row string } }
	}
	s.get(t, "/api/v1/campaigns/c-1/read-model?seq=3", &row)
	texts := []string{command(t, d, nil, append([]string{"campaigns", "rows", "c-1", "--seq", "3"}, flags...)...).stdout}
	cell := "read-model/cell?row=" + row.Changes[0].Rows[0].Row + "&seq=%d&column="
	paths := []string{"/campaigns/c-1/read-model?live=1", "/api/v1/campaigns/c-1/events/3/changes", "/api/v1/campaigns/c-1/events/4/changes", "/api/v1/campaigns/c-1/events/5/changes"}
	for _, base := range []string{"/campaigns/c-1/", "/api/v1/campaigns/c-1/"} {
		for seq := range 6 {
			if paths = append(paths, fmt.Sprintf("%sread-model?seq=%d", base, seq)); seq > 2 {
				paths = append(paths, fmt.Sprintf(base+cell+"api_token", seq), fmt.Sprintf(base+cell+"note", seq))
			}
		}
	}
	for _, path := range paths {
		texts = append(texts, path+"\n"+string(fetch(t, s, path).body))
	}
	secrets := regexp.MustCompile(`tok-|sk_live|abcdef0123|zyxwvu|99999|\b(918|920)\b`)
	for _, text := range texts {
		text = varying.ReplaceAllString(text, "")
		must.Equal(t, secrets.FindString(text), "", "a secret is told by", text)
	}
	must.Hold(t, strings.Contains(texts[0], `gold=9 (was 5)`), "the command prints\n%s", texts[0])
	saysWhatIsPaused(t, s)
}

// Wherever a replay is shown of rows that another version built, both versions are named, and no more is
// offered to be rebuilt than differs.
func TestReplay_ofRowsThatAnotherVersionBuiltNamesBothEverywhere(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	before := guestProjections(":payload.name!")
	flags := writeProjections(t, before)
	s := start(t, d, flags...)
	const differing, campaigns = 12, 14
	for i := 1; i <= campaigns; i++ {
		second := guest("guest.came")
		if i <= differing {
			second.Payload["nick"] = "annie"
		}
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), []event{guest("guest.left"), second})
	}
	s.awaitSettled(t)
	built := versionOf(t, s)
	s.stop(t)
	rewrite(t, flags[1], guestProjections("coalesce(:payload.nick, :payload.name!)"))
	s = start(t, d, flags...)
	loaded := versionOf(t, s)
	s.post(t, http.StatusOK, "/api/v1/campaigns/c-01/pause", map[string]any{"reason": "inspection"})
	appendTo(t, s, "", "c-01", []event{guest("guest.came")})

	verify := awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "verify", "all_campaigns": true, "reason": "a deploy"}).ID)
	var rehearsal runDoc
	s.post(t, http.StatusAccepted, "/api/v1/rehearsals", map[string]any{"files": []map[string]string{{"name": "guests.sql", "text": before["guests.sql"]}}}).decode(t, &rehearsal)
	rehearsal = awaitEnd(t, s, rehearsal.ID)

	var m struct {
		Tables []struct{ Rows []struct{ Row string } }
	}
	s.get(t, "/api/v1/campaigns/c-01/read-model", &m)
	cell := "?" + url.Values{"row": {m.Tables[0].Rows[1].Row}, "column": {"name"}}.Encode()
	names := func(what, text string) {
		for _, version := range []string{built, loaded} {
			must.Hold(t, strings.Contains(text, version), "%s does not name version %s:\n%s", what, version, tail(text, 4000))
		}
	}
	for _, path := range []string{"/campaigns/c-01/read-model", "/campaigns/c-01/read-model?seq=1", "/campaigns/c-01/read-model/cell" + cell, "/campaigns/c-01/events/2?tab=rows"} {
		page := string(fetch(t, s, path).body)
		must.Hold(t, strings.Contains(page, "with what built the rows, version 1 ("+built), "%s is not replayed with the version that built the rows:\n%s", path, tail(page, 3000))
	}
	out := mustCommand(t, d, nil, append([]string{"campaigns", "rows", "c-01"}, flags...)...)
	must.Hold(t, strings.Contains(out, "with what built the rows, version 1 ("+built) && strings.Contains(out, `name="ana"`), "the command says %s", out)
	for _, path := range []string{"/rows/c-01/3/dry-run",
		"/campaigns/c-01", "/projections", "/projections/guests", "/", "/runs/new?kind=rebuild&all_campaigns=true", fmt.Sprintf("/runs/%d", verify.ID), fmt.Sprintf("/runs/%d/results/c-01", verify.ID),
		fmt.Sprintf("/runs/%d", rehearsal.ID),
		"/api/v1/campaigns/c-01/read-model", "/api/v1/campaigns/c-01/read-model/cell" + cell, "/api/v1/campaigns/c-01/events/2/changes", "/api/v1/rows/c-01/3/dry-run",
		"/api/v1/campaigns/c-01/projections", "/api/v1/projections", fmt.Sprintf("/api/v1/runs/%d/results", verify.ID), fmt.Sprintf("/api/v1/runs/%d/results/c-01", verify.ID)} {
		names(path, string(fetch(t, s, path).body))
	}
	result := string(fetch(t, s, fmt.Sprintf("/runs/%d/results/c-01", rehearsal.ID)).body)
	must.Hold(t, strings.Contains(result, "The changed files make the rows that it has now. Its live rows in guests are not those that the loaded files make"), "the rehearsal of the files before says:\n%s", tail(result, 4000))
	for _, c := range []string{"report", "campaigns list --state drifted", "verify", fmt.Sprintf("runs show %d", verify.ID), fmt.Sprintf("runs show %d --json", verify.ID), fmt.Sprintf("runs show %d", rehearsal.ID),
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
	page := string(fetch(t, s, fmt.Sprintf("/runs/%d", verify.ID)).body)
	said, _, offered := strings.Cut(page, `data-testid="run-rebuild">Rebuild 12 drifted campaigns…`)
	names("before the rebuild, the page of the run", said)
	must.Hold(t, offered, "the page of the run offers something else:\n%s", page)
	page = string(fetch(t, s, fmt.Sprintf("/runs/new?drifted=%d", verify.ID)).body)
	must.Hold(t, strings.Contains(page, "into 1 projection and replaces") && strings.Contains(page, "of 12 campaigns"), "the page of the rebuild is\n%s", page)
}

// versionOf is the beginning of the hash of the only loaded projection.
func versionOf(t *testing.T, s *server) string {
	list := s.items(t, "/api/v1/projections")
	return list[slices.IndexFunc(list, func(p item) bool { return p.Version != "" })].Version[:12]
}
