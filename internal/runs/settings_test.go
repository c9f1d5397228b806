package runs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// shapes has a column for each way in which a setting of the session could change what an event becomes.
const shapes = `-- projection: shapes
-- tables: shapes
-- schema
create table shapes (campaign_id text not null primary key, at timestamptz, local timestamp, day date, abbreviated timestamptz, span interval, ratio double precision,
  raw bytea, cash text, said text, at_said text, day_said text, span_said text, ratio_said text, raw_said text, month text, number text,
  compared text, escaped bigint, quoted text, listed text, searched text, node text, content text);
-- on: shaped
insert into shapes values (:campaign_id, cast(:payload.at as timestamptz), cast(cast(:payload.at as timestamptz) as timestamp), cast(:payload.day as date),
  cast(:payload.abbreviated as timestamptz), cast(:payload.span as interval), cast(:payload.ratio as double precision), cast(:payload.raw as bytea),
  cast(cast(1234.5 as money) as text), to_char(1234.5, 'L9G999D99'), cast(cast(:payload.at as timestamptz) as text), cast(cast(:payload.day as date) as text),
  cast(cast(:payload.span as interval) as text), cast(cast(:payload.ratio as double precision) / 3 as text), cast(cast(:payload.raw as bytea) as text),
  to_char(cast(:payload.at as timestamptz), 'TMMonth HH24 TZ'), to_char(-1234.5, '999G999D99PR'),
  case when cast(:payload.missing as text) = null then 'null' else 'unknown' end, length('a\\b'), quote_ident('plain'), cast(cast('{null,1}' as text[]) as text) || coalesce((cast('{null}' as text[]))[1], ' absent'),
  cast(to_tsvector('the foxes were running') as text), cast(xmlelement(name x, cast('raw' as bytea)) as text), cast(cast('<a/><b/>' as xml) as text));
update shapes set day = day + interval '1 day' where campaign_id = :campaign_id and at > '2026-03-04 00:00' and local > '04.03.2026' is not null;
`

const shaped = `{"at":"2026-03-04 23:30:07","day":"03/04/2026","abbreviated":"2026-03-04 05:06:07 EST","span":"-1 2:03:04","ratio":0.1,"raw":"a\\001z"}`

// oddSettings are settings that a role, a database or a server may have for others.
var oddSettings = []string{
	`timezone = 'Europe/Berlin'`, `timezone = 'Asia/Kathmandu'`, `timezone = 'EST5EDT'`, `timezone_abbreviations = 'Australia'`,
	`datestyle = 'ISO, DMY'`, `datestyle = 'German'`, `datestyle = 'SQL, DMY'`, `datestyle = 'Postgres, YMD'`,
	`intervalstyle = 'iso_8601'`, `intervalstyle = 'sql_standard'`, `intervalstyle = 'postgres_verbose'`,
	`extra_float_digits = -15`, `extra_float_digits = 0`, `extra_float_digits = 3`, `bytea_output = 'escape'`, `array_nulls = off`,
	`standard_conforming_strings = off`, `backslash_quote = off`, `escape_string_warning = off`, `transform_null_equals = on`, `quote_all_identifiers = on`,
	`xmlbinary = 'hex'`, `xmloption = 'document'`, `default_text_search_config = 'pg_catalog.german'`, `gin_fuzzy_search_limit = 1`,
	`lc_monetary = 'C.UTF-8'`, `lc_numeric = 'C.UTF-8'`, `lc_time = 'C.UTF-8'`, `client_encoding = 'LATIN1'`, `client_min_messages = 'error'`,
	`search_path = 'pg_catalog'`, `session_replication_role = 'replica'`, `row_security = off`, `check_function_bodies = off`, `synchronize_seqscans = on`,
	`default_transaction_isolation = 'serializable'`, `default_transaction_isolation = 'read uncommitted'`, `default_transaction_deferrable = on`,
	`statement_timeout = '20s'`, `lock_timeout = '1ms'`, `idle_in_transaction_session_timeout = '100ms'`, `idle_session_timeout = '500ms'`,
	`synchronous_commit = 'off'`, `plan_cache_mode = 'force_generic_plan'`, `enable_indexscan = off`, `work_mem = '64kB'`,
}

// TestPostgresRows_dependOnTheirEventsAlone changes a setting for the role, for the database or for the server between an append and what follows.
func TestPostgresRows_dependOnTheirEventsAlone(t *testing.T) {
	t.Parallel()
	server := must.Get(pgtest.Start()).Or(t)
	t.Cleanup(func() { server.Stop() })
	must.OK(t, server.CreateDatabase(t.Context(), "odd"))
	address := server.URL("odd")
	// The administrator's session keeps the settings that it has.
	admin := storetest.Connect(t, address)
	storetest.Run(t, admin, `set timezone = 'UTC'; set datestyle = 'ISO, MDY'; set client_encoding = 'UTF8'; set standard_conforming_strings = on; set idle_session_timeout = 0; set statement_timeout = 0;
set search_path = projections; set default_transaction_isolation = 'read committed'`)
	pair := dbtest.Pair{Journal: dbtest.InSchema(address, "journal"), Projections: dbtest.InSchema(address, "projections")}
	first := enginetest.OpenPair(t, pair, enginetest.Define(t, shapes))
	first.Feed(enginetest.EventOf("first", "shaped", shaped))
	mustMatch(t, "before", first)
	published := publishedFirst(t, first)
	levels := []string{`alter role postgres in database odd`, `alter database odd`, `alter role postgres`, `alter system`}
	each := size.Of(3, 2, 1) // settings of a level in a round
	rounds := (len(oddSettings) + each*len(levels) - 1) / (each * len(levels))
	for round := range rounds {
		var set, reset []string
		for at := round; at < len(oddSettings); at += rounds {
			level := levels[at/rounds%len(levels)]
			set, reset = append(set, level+` set `+oddSettings[at]), append(reset, level+` reset `+strings.Fields(oddSettings[at])[0])
		}
		campaign := fmt.Sprintf("c%d", round)
		first.MustAppend(enginetest.EventOf(campaign, "shaped", shaped))
		storetest.Run(t, admin, append(set, `select pg_reload_conf()`)...)
		b := first.Beside()
		b.Feed(enginetest.EventOf(campaign+"b", "shaped", shaped))
		what := strings.Join(set, "; ")
		mustMatch(t, what, b)
		must.Equal(t, publishedFirst(t, b), published, what, "publishes")
		rebuild := b.RunToEnd(enginetest.Rebuild(campaign, campaign+"b"))
		must.Hold(t, rebuild.Status == outbox.RunCompleted && rebuild.Counts.Matched == 2, "%s: rebuilt as %s with %+v", what, rebuild.Status, rebuild.Counts)
		must.OK(t, b.Store.Close())
		storetest.Run(t, admin, append(reset, `select pg_reload_conf()`)...)
	}
	mustMatch(t, "in the end", first)
	// Behind a pooler no session can be pinned. What is last of each name is set.
	for _, setting := range oddSettings {
		storetest.Run(t, admin, `alter role postgres set `+setting)
	}
	pooled := server.Pooler(t)(address)
	behind := enginetest.OpenPair(t, dbtest.Pair{Journal: dbtest.InSchema(pooled, "journal"), Projections: pair.Projections}, first.Sources)
	behind.Feed(enginetest.EventOf("pooled", "shaped", shaped))
	storetest.Run(t, admin, `alter role postgres reset all`)
	var different, all int
	row := admin.QueryRow(t.Context(), `select count(distinct (to_jsonb(s) - 'campaign_id')), count(*) from projections.shapes as s`)
	err := row.Scan(&different, &all)
	must.Hold(t, err == nil && different == 1 && all == 2+2*rounds, "%d different rows of %d (%v), want equal rows of %d events", different, all, err, 2+2*rounds)
	first.Sound()
}

func publishedFirst(t *testing.T, b *enginetest.Engine) string {
	events, err := b.EventsFrom(t.Context(), 0, 1)
	text, _ := json.Marshal(events)
	must.Need(t, err == nil && len(events) == 1, "read %s, %v", text, err)
	return string(text)
}

func mustMatch(t *testing.T, what string, b *enginetest.Engine) {
	run := b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Status == outbox.RunCompleted && run.Counts.Drifted == 0 && run.Counts.Failed == 0, "%s: verified as %s with %+v", what, run.Status, run.Counts)
}
