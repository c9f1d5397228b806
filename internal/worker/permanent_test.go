package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
)

// strict refuses events of its types in ways that no retry changes.
const strict = `-- projection: strict
-- tables: strict_rows, strict_numbers

-- schema
create table strict_rows (campaign_id text primary key, name text not null);
create table strict_numbers (n integer primary key, campaign_id text not null);

-- on: required
insert into strict_rows (campaign_id, name) values (:campaign_id, :payload.name!);

-- on: empty
insert into strict_rows (campaign_id, name) values (:campaign_id, :payload.name);

-- on: typed
insert into strict_numbers (n, campaign_id) values (:payload.n, :campaign_id);
`

func TestPass_declaresAnEventDeadAtOnceThatCanNeverSucceed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event  outbox.Event
		broken string
	}{
		"a required value is missing": {event: eventOf("a", "required", `{}`)},
		"a required value is null":    {event: eventOf("a", "required", `{"name":null}`)},
		"a column is not null":        {event: eventOf("a", "empty", `{}`)},
		"a value has the wrong type":  {event: eventOf("a", "typed", `{"n":"one"}`)},
		"a table is not there":        {eventOf("a", "required", `{"name":"x"}`), `drop table strict_rows`},
		"a column is not there":       {eventOf("a", "required", `{"name":"x"}`), `alter table strict_rows rename column name to title`},
	} {
		b := open(t, define(t, ledger, strict))
		if c.broken != "" {
			mustExec(t, b.projections, c.broken)
		}
		b.mustAppend(t, c.event, noted("a"))
		b.drain(t)

		b.mustStand(t, "a", 1, outbox.Dead, 1)
		b.mustStand(t, "a", 2, outbox.Pending, 0)
		at := b.row(t, "a", 1).Attempts[0]
		if want := b.set.Named("strict").Version; !at.Permanent || at.Projection != "strict" || at.ProjectionVersion != want {
			t.Errorf("%s: the attempt is %+v, want a permanent one of version %s", name, at, want)
		}
		if c := b.campaign(t, "a"); c.HeadStatus != outbox.Dead {
			t.Errorf("%s: the head of the campaign is %s", name, c.HeadStatus)
		}
		b.mustBeSound(t)
	}
}

func TestPass_requeuesWhatCouldNeverSucceedForARepairedProjection(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, strict))
	b.mustAppend(t, eventOf("a", "required", `{}`), noted("a"))
	b.drain(t)
	b.mustStand(t, "a", 1, outbox.Dead, 1)

	b.sources = define(t, ledger, strings.Replace(strict, ":payload.name!", "coalesce(:payload.name, '')", 1))
	repaired := b.beside(t)
	repaired.mustRequeue(t, "a", 1)
	repaired.drain(t)
	repaired.mustHaveApplied(t, "a", 2)
	repaired.mustBeSound(t)
}

func TestPass_triesAgainWhatRowsOfOthersRefuse(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, strict))
	mustExec(t, b.projections, `insert into strict_rows (campaign_id, name) values ('a', 'in the way')`)
	b.mustAppend(t, eventOf("a", "required", `{"name":"x"}`))
	b.pass(t)

	b.mustStand(t, "a", 1, outbox.Failed, 1)
	if at := b.row(t, "a", 1).Attempts[0]; at.Permanent || at.Projection != "strict" {
		t.Errorf("the attempt is %+v, want one of strict that is not permanent", at)
	}
}

// SQLite has one code for a statement that it refuses and for one that goes
// wrong.
func TestSQLitePass_triesAgainWhatGoesWrongInAStatement(t *testing.T) {
	t.Parallel()
	const refusing = `-- projection: refusing
-- tables: refused

-- schema
create table refused (campaign_id text primary key, n bigint);
create trigger refused_ten before insert on refused when new.n = 10 begin select raise(abort, 'not ten'); end;

-- on: told
insert into refused (campaign_id, n) values (:campaign_id, abs(:payload.n));
`
	b := open(t, define(t, ledger, refusing))
	b.mustAppend(t, eventOf("overflow", "told", `{"n":-9223372036854775808}`), eventOf("raised", "told", `{"n":10}`))
	b.pass(t)
	for _, campaign := range []string{"overflow", "raised"} {
		b.mustStand(t, campaign, 1, outbox.Failed, 1)
		if at := b.row(t, campaign, 1).Attempts[0]; at.Permanent {
			t.Errorf("%q is taken for permanent", at.Error)
		}
	}
}

func TestPass_setsAQuarantiningProjectionAsideAtOnceWhenItCanNeverFollow(t *testing.T) {
	t.Parallel()
	lenient := strings.Replace(strict, "-- tables", "-- on-failure: quarantine\n-- tables", 1)
	b := open(t, define(t, ledger, lenient))
	b.mustAppend(t, eventOf("a", "required", `{}`), noted("a"))
	b.drain(t)
	b.mustHaveApplied(t, "a", 2)
	if open := failures(t, b); !slices.Equal(open, []string{"a strict 1 1"}) {
		t.Errorf("open failures %q, want one after one attempt", open)
	}
	b.mustBeSound(t)
}

func TestApplyInline_declaresAnEventDeadAtOnceThatCanNeverSucceed(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, strict), mode(outbox.ModeInline))
	if err := b.appendInline(t, eventOf("a", "required", `{}`)); err == nil || !strings.Contains(err.Error(), "can never be applied with this version of the projection") {
		t.Fatalf("an event that can never be applied was answered with %v", err)
	}
	b.mustStand(t, "a", 1, outbox.Dead, 1)
	if at := b.row(t, "a", 1).Attempts[0]; !at.Permanent {
		t.Errorf("the attempt is %+v, want a permanent one", at)
	}
}

func TestPass_triesAnEventAsOftenAsItsProjectionSays(t *testing.T) {
	t.Parallel()
	for most, server := range map[int]int{3: 8, 4: 2} {
		now := newClock()
		impatient := strings.Replace(accounts, "-- tables", fmt.Sprintf("-- max-attempts: %d\n-- tables", most), 1)
		b := open(t, define(t, ledger, impatient), at(now), maxAttempts(server))
		b.mustAppend(t, opened("a", 10), spent("a", 100))
		for n := 1; n < most; n++ {
			b.pass(t)
			b.mustStand(t, "a", 2, outbox.Failed, n)
			now.advance(10 * time.Minute)
		}
		b.pass(t)
		b.mustStand(t, "a", 2, outbox.Dead, most)
	}
}

func TestPass_setsAProjectionAsideAfterAsManyAttemptsAsItSays(t *testing.T) {
	t.Parallel()
	now := newClock()
	impatient := strings.Replace(lenientAccounts, "-- tables", "-- max-attempts: 2\n-- tables", 1)
	b := open(t, define(t, ledger, impatient), at(now))
	b.mustAppend(t, opened("a", 10), spent("a", 100), noted("a"))
	b.pass(t)
	b.mustStand(t, "a", 2, outbox.Failed, 1)
	now.advance(time.Minute)
	b.drain(t)
	b.mustHaveApplied(t, "a", 3)
	if open := failures(t, b); !slices.Equal(open, []string{"a accounts 2 2"}) {
		t.Errorf("open failures %q, want one after two attempts", open)
	}
}

func TestErrorGroups_knowWithWhichProjectionEventsFailed(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, accounts), maxAttempts(2), at(newClock()))
	b.mustAppend(t, opened("a", 10), spent("a", 100))
	b.pass(t)
	judged := func(b *bench) outbox.JudgedGroup {
		t.Helper()
		all, err := b.ErrorGroups(t.Context())
		if err != nil || len(all.Groups) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		versions, err := b.Versions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all.Judged(outbox.Running{Build: "test", Versions: versions})[0]
	}
	if g := judged(b); g.Hope != outbox.HopeUnknown || len(g.Tried) != 1 || g.Tried[0].Projection != "accounts" {
		t.Errorf("before the projection is repaired: %+v", g)
	}
	b.sources = define(t, ledger, accounts+"\n-- repaired\n")
	repaired := b.beside(t)
	if g := judged(repaired); g.Hope != outbox.HopeSome || !strings.Contains(g.Verdict, "projection accounts changed") || !strings.Contains(g.Verdict, "the build did not") {
		t.Errorf("after the projection was repaired: %+v", g)
	}
}
