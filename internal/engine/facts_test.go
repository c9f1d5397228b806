package engine

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestFacts_haveTheSources(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`insert into intake_sources (source) values ('shop')`)
	facts, err := Wire(f.Store).Facts.Read(f.Ctx)
	must.Hold(t, err == nil && len(facts.Sources) == 1 && facts.Sources[0].Name == "shop", "facts %+v, %v", facts.Sources, err)
}

// The facts name what is behind trouble: the projections that drifted, with the versions that built
// them, the errors of quarantined ones, each beside a common one, and the failed runs that no later one made good.
func TestFacts_nameWhatIsBehindTrouble(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for n, projection := range []string{"seats", "seats", "users"} {
		f.Exec(`insert into verifications (campaign_id, projection, at, seq, verdict, run_id, digest, added, changed, removed, first_seq, error)
values ($1, $2, $3, 3, 'drift', 1, '', 0, 0, 0, 0, '')`, string(rune('a'+n)), projection, 1_000_000+n)
	}
	const many = `with recursive n (i) as (select 1 union all select i + 1 from n where i < 11000) `
	f.Exec(`insert into verifications (campaign_id, projection, at, seq, verdict, run_id, digest, added, changed, removed, first_seq, error)
` + many + `select 'a-' || i, 'common', 1, 3, 'drift', 1, '', 0, 0, 0, 0, '' from n`)
	for _, run := range [][2]string{{"verify", "failed"}, {"rebuild", "failed"}, {"verify", "completed"}, {"replay", "failed"}, {"rehearse", "failed"}} {
		f.Exec(`insert into runs (kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at, finished_at)
values ($1, $2, '[]', 1, '["seats"]', '{}', '', 'ana', 'page', '', 1, 1, 1)`, run[0], run[1])
	}
	f.ExecProjections(`insert into projection_versions (projection, version, built_version, installed_at) values ('seats', 'v2', 'v1', 1), ('users', 'v1', 'v1', 1)`)
	f.ExecProjections(`insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('a', 'users', 1, 'quarantined', 1)`)
	f.ExecProjections(`insert into failures (campaign_id, projection, seq, event_type, fingerprint, message, attempts, first_at, last_at) values ('a', 'users', 2, 'x', '', 'no such column', 1, 1, 1)`)
	f.ExecProjections(`insert into failures (campaign_id, projection, seq, event_type, fingerprint, message, attempts, first_at, last_at)
` + many + `select 'a-' || i, 'common', 2, 'x', 'f', 'common', 1, 1, 1 from n`)
	facts := must.Get(Wire(f.Store).Facts.Read(f.Ctx)).Or(t)
	if len(facts.Found) != 3 || facts.Found[0].Projection != "common" || facts.Found[1].Projection != "seats" || facts.Found[1].Campaigns != 2 || facts.Found[1].Since.UnixMicro() != 1_000_000 || facts.Found[2].Projection != "users" {
		t.Errorf("found %+v", facts.Found)
	}
	if !facts.Loaded[0].BuiltByOtherVersion || facts.Loaded[1].BuiltByOtherVersion || len(facts.Quarantined) != 1 || facts.Quarantined[0].Example != "no such column" {
		t.Errorf("built by others %+v, failures %+v", facts.Loaded, facts.Quarantined)
	}
	must.Hold(t, len(facts.Runs) == 5 && facts.Runs[0].Kind == replay.RunRehearse, "runs %+v", facts.Runs)
}
