package store_test

import (
	"slices"
	"testing"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/publishing"
)

// takeIdentityBack makes the journal database one of the version before audit
// records said what they were about.
func (f *fixture) takeIdentityBack() {
	f.TB.Helper()
	if dbtest.Postgres() {
		f.Exec(`drop function operator_acts_refuse_loss() cascade`)
	} else {
		f.Exec(`drop trigger operator_acts_refuse_delete`)
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
	for _, statement := range []string{`drop index verifications_failed`, `alter table verifications drop column error`, `drop index campaigns_suspects`, `drop table audit_horizon`, `drop table tokens`, `drop table act_targets`, `drop table append_keys`, `drop index verifications_found`, `drop table applied_spans`, `drop index attempts_by_time`, `alter table attempts drop column died`, `alter table campaigns drop column applied_span`, `delete from goose_db_version where version_id >= 9`} {
		f.Exec(statement)
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
	for _, change := range []string{`update operator_acts set actor = 'nobody'`, `delete from operator_acts`} {
		if _, err := g.JournalDB.Exec(change); err == nil {
			t.Errorf("the database does: %s", change)
		}
	}
}
