package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
)

// takeAuditLogBack reverts the journal database to the version before the audit log had its
// name.
func (f *fixture) takeAuditLogBack() {
	f.TB.Helper()
	back := []string{
		`drop trigger audit_log_refuse_update`, `drop trigger audit_log_refuse_delete`,
		`drop index audit_log_by_campaign`, `drop index audit_log_once`, `drop index audit_log_by_target`, `drop index audit_log_by_time`, `drop index audit_log_rows_by_campaign`,
		`alter table audit_log rename to operator_acts`,
		`create index operator_acts_by_campaign on operator_acts (campaign_id, id)`,
		`create unique index operator_acts_once on operator_acts (idempotency_key) where idempotency_key <> ''`,
		`create index operator_acts_by_target on operator_acts (target, id) where target <> ''`,
		`create index operator_acts_by_time on operator_acts (at)`,
		`create trigger operator_acts_refuse_update before update on operator_acts begin select raise(abort, 'never'); end`,
		`create trigger operator_acts_refuse_delete before delete on operator_acts begin select raise(abort, 'kept'); end`,
	}
	if dbtest.Postgres() {
		back = []string{
			`drop view operator_acts`, `drop view act_targets`,
			`alter table audit_log rename to operator_acts`,
			`alter index audit_log_pkey rename to operator_acts_pkey`, `alter sequence audit_log_id_seq rename to operator_acts_id_seq`,
			`alter trigger audit_log_refuse_update on operator_acts rename to operator_acts_refuse_update`,
			`alter trigger audit_log_refuse_delete on operator_acts rename to operator_acts_refuse_delete`,
			`alter function audit_log_refuse_change() rename to operator_acts_refuse_change`,
			`alter function audit_log_refuse_loss() rename to operator_acts_refuse_loss`,
			`alter index audit_log_rows_pkey rename to act_targets_pkey`, `alter index audit_log_rows_by_campaign rename to act_targets_by_campaign`,
		}
		for _, index := range []string{"by_campaign", "once", "by_target", "by_time"} {
			back = append(back, `alter index audit_log_`+index+` rename to operator_acts_`+index)
		}
	}
	back = append(back, `alter table audit_log_rows rename column entry_id to act_id`, `alter table audit_log_rows rename to act_targets`, `delete from goose_db_version where version_id = 17`)
	if !dbtest.Postgres() {
		back = append(back, `create index act_targets_by_campaign on act_targets (campaign_id, act_id, first_seq)`)
	}
	for _, statement := range back {
		f.Exec(statement)
	}
}

// takeIdentityBack reverts the journal database to the version before audit records had
// targets.
func (f *fixture) takeIdentityBack() {
	f.TB.Helper()
	f.takeAuditLogBack()
	if dbtest.Postgres() {
		f.Exec(`drop function operator_acts_refuse_loss() cascade`)
	} else {
		f.Exec(`drop trigger operator_acts_refuse_delete`)
		f.Exec(`drop index outbox_retried`)
	}
	for _, index := range []string{"operator_acts_by_target", "operator_acts_by_time"} {
		f.Exec(`drop index ` + index)
	}
	for _, column := range []string{"auth", "role", "target", "outcome", "refusal"} {
		f.Exec(`alter table operator_acts drop column ` + column)
	}
	for _, column := range []string{"trouble", "stalled", "campaigns"} {
		f.Exec(`alter table instances drop column ` + column)
	}
	for _, column := range []string{"projection", "projection_version", "permanent"} {
		f.Exec(`alter table attempts drop column ` + column)
	}
	for _, statement := range []string{`drop table run_rehearsals`, `alter table run_results drop column rehearsed`, `alter table operations drop column rehearsal`, `alter table publisher_progress drop column settings`, `alter table publisher_progress drop column healthy`, `alter table publisher_progress drop column health_message`, `alter table publisher_progress drop column health_at`, `alter table publisher_progress drop column hanging_since`, `alter table publisher_progress drop column test_taken`, `drop table intake_sources`, `drop table intake_rejections`, `drop table alert_evaluator`, `drop table alert_states`, `drop table alert_messages`, `drop table alert_receivers`, `drop table alert_mutes`, `drop table series_samples`, `drop table projection_loads`, `drop table views`, `drop index events_by_event_id`, `create unique index events_by_event_id on events (campaign_id, event_id)`, `drop index events_by_entity`, `drop index events_by_request`, `drop index campaigns_by_trouble`, `drop index verifications_failed`, `drop index outbox_causes`, `drop index rehearsals_causes`, `alter table verifications drop column error`, `alter table verifications drop column version`, `drop index campaigns_suspects`, `drop table audit_horizon`, `drop table tokens`, `drop table act_targets`, `drop table append_keys`, `drop index verifications_found`, `drop table applied_spans`, `drop index attempts_by_time`, `alter table attempts drop column died`, `alter table campaigns drop column applied_span`, `delete from goose_db_version where version_id >= 9`} {
		f.Exec(statement)
	}
}

// A rolling restart has instances of both versions on one database.
func TestPostgresMigrations_anInstanceOfTheVersionBeforeKeepsTheAuditLog(t *testing.T) {
	t.Parallel()
	f := open(t)
	id := f.Number(`
insert into operator_acts (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result, auth, role, target, outcome, refusal)
values (1, 'older', 'page', '', 'requeue', 'a', 1, '{}', '{}', 'x', '', '', '{}', 'none', 'admin', '', 'done', '')
returning id`)
	f.Exec(fmt.Sprintf(`insert into act_targets (act_id, campaign_id, first_seq, last_seq, at) values (%d, 'a', 1, 3, 1)`, id))
	if n := f.Number(`select count(*) from audit_log where id = $1 and actor = 'older'`, id); n != 1 {
		t.Errorf("the audit log has %d of its records, want 1", n)
	}
	if n := f.Number(`select count(*) from audit_log_rows where entry_id = $1`, id); n != 1 {
		t.Errorf("it names %d ranges of rows, want 1", n)
	}
}

func TestMigrations_auditRecordsOfOlderVersionsSayWhatTheyWereAbout(t *testing.T) {
	t.Parallel()
	f := open(t)
	publishers := publishing.NewProgress(f.Store)
	archive := outbox.SubscriptionName{Topic: "scenes", Publisher: "archive"}
	if err := publishers.Register(f.Ctx, []outbox.PublisherDefinition{{SubscriptionName: archive, MaxErrors: 3}}); err != nil {
		t.Fatal(err)
	}
	f.AppendN("a", 1)
	run := f.StartRun(outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: 1, Projections: []string{"history"}})
	loaded := f.WithProjections("roster")
	for _, act := range []func() error{
		func() error { _, err := f.Runs.Cancel(f.Ctx, ana(""), run.ID); return err },
		func() error { _, err := publishers.Pause(f.Ctx, ana(""), archive); return err },
		func() error { _, err := f.Runs.PauseProjection(f.Ctx, ana(""), "roster", "", loaded); return err },
		func() error { _, err := f.PauseCampaign(f.Ctx, ana(""), "a"); return err },
	} {
		if err := act(); err != nil {
			t.Fatal(err)
		}
	}
	var want []outbox.Target
	for _, a := range f.DoneActions() {
		want = append(want, a.Target)
	}
	f.Close()
	f.takeIdentityBack()
	g := f.beside()
	var got []outbox.Target
	for _, a := range g.DoneActions() {
		got = append(got, a.Target)
		if a.Outcome != outbox.AuditDone || a.Auth != "" {
			t.Errorf("%s: %+v", a.Action, a)
		}
	}
	if !slices.Equal(want, got) || !slices.Contains(want, outbox.RunTarget(run.ID)) || !slices.Contains(want, outbox.PublisherTarget(archive)) {
		t.Errorf("the records are about %q, and were about %q", got, want)
	}
	for _, change := range []string{`update audit_log set actor = 'nobody'`, `delete from audit_log`} {
		if _, err := g.JournalDB.Exec(change); err == nil {
			t.Errorf("the database does: %s", change)
		}
	}
}
