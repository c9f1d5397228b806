package worker_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// strict refuses events of its types in ways that a retry cannot fix.
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
		"a required value is missing": {event: enginetest.EventOf("a", "required", `{}`)},
		"a required value is null":    {event: enginetest.EventOf("a", "required", `{"name":null}`)},
		"a column is not null":        {event: enginetest.EventOf("a", "empty", `{}`)},
		"a value has the wrong type":  {event: enginetest.EventOf("a", "typed", `{"n":"one"}`)},
		"a column is not there":       {enginetest.EventOf("a", "required", `{"name":"x"}`), `alter table strict_rows rename column name to title`},
	} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, strict))
		if c.broken != "" {
			b.ExecProjections(c.broken)
		}
		b.Feed(c.event, enginetest.Noted("a"))

		b.MustStand("a", 1, outbox.Dead, 1)
		b.MustStand("a", 2, outbox.Pending, 0)
		at := b.MustRow("a", 1).Attempts[0]
		want := b.Set.Named("strict").Version
		must.Hold(t, at.Permanent && at.Projection == "strict" && at.ProjectionVersion == want, "%s: the attempt is %+v, want a permanent one of version %s", name, at, want)
		must.Equal(t, b.MustCampaign("a").HeadStatus, outbox.Dead, name, "the head of the campaign")
		b.Sound()
	}
}

// Rows of others may go, and a worker makes a dropped table again.
func TestPass_triesAgainWhatMaySucceedLater(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{`insert into strict_rows (campaign_id, name) values ('a', 'in the way')`, `drop table strict_rows`} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, strict))
		b.ExecProjections(broken)
		b.MustAppend(enginetest.EventOf("a", "required", `{"name":"x"}`))
		b.MustPass()
		b.MustStand("a", 1, outbox.Failed, 1)
		at := b.MustRow("a", 1).Attempts[0]
		must.Hold(t, !at.Permanent && at.Projection == "strict", "%s: the attempt is %+v, want one of strict that is not permanent", broken, at)
	}
}

// SQLite has one code for a statement that it refuses and for one that fails while it runs.
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
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, refusing))
	b.MustAppend(enginetest.EventOf("overflow", "told", `{"n":-9223372036854775808}`), enginetest.EventOf("raised", "told", `{"n":10}`))
	b.MustPass()
	for _, campaign := range []string{"overflow", "raised"} {
		b.MustStand(campaign, 1, outbox.Failed, 1)
		at := b.MustRow(campaign, 1).Attempts[0]
		must.Hold(t, !at.Permanent, "%q is taken for permanent", at.Error)
	}
}

func TestPass_setsAQuarantiningProjectionAsideAtOnceWhenItCanNeverFollow(t *testing.T) {
	t.Parallel()
	lenient := strings.Replace(strict, "-- tables", "-- on-failure: quarantine\n-- tables", 1)
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, lenient))
	b.Feed(enginetest.EventOf("a", "required", `{}`), enginetest.Noted("a"))
	b.MustHaveApplied("a", 2)
	must.Equal(t, b.OpenFailures(), []string{"a strict 1 1"}, "open failures")
	b.Sound()
}

func TestApplyInline_declaresAnEventDeadAtOnceThatCanNeverSucceed(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, strict), enginetest.InMode(outbox.ModeInline))
	err := appendInline(t, b, enginetest.EventOf("a", "required", `{}`))
	must.Need(t, err != nil && strings.Contains(err.Error(), "can never be applied with this version of the projection"), "an event that can never be applied was answered with %v", err)
	b.MustStand("a", 1, outbox.Dead, 1)
	at := b.MustRow("a", 1).Attempts[0]
	must.Hold(t, at.Permanent, "the attempt is %+v, want a permanent one", at)
}

func TestPass_triesAnEventAsOftenAsItsProjectionSays(t *testing.T) {
	t.Parallel()
	for most, server := range map[int]int{3: 8, 4: 2} {
		now := storetest.NewClock()
		impatient := strings.Replace(enginetest.Accounts, "-- tables", fmt.Sprintf("-- max-attempts: %d\n-- tables", most), 1)
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, impatient), enginetest.At(now), enginetest.MaxAttempts(server))
		b.MustAppend(enginetest.Opened("a", 10), enginetest.Spent("a", 100))
		for n := 1; n < most; n++ {
			b.MustPass()
			b.MustStand("a", 2, outbox.Failed, n)
			now.Advance(10 * time.Minute)
		}
		b.MustPass()
		b.MustStand("a", 2, outbox.Dead, most)
	}
}

// A dead event is a line in the log; those of one error in one wave are one line.
func TestPass_logsWhatDied(t *testing.T) {
	t.Parallel()
	var log spokenLog
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, strict), func(o *enginetest.Options) {
		o.Worker.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	b.MustAppend(enginetest.EventOf("a", "required", `{}`))
	b.MustAppend(enginetest.EventOf("b", "required", `{}`))
	b.MustAppend(enginetest.EventOf("c", "typed", `{"n":"one"}`))
	b.Feed(enginetest.Noted("d"))
	if !log.says([]string{"level=WARN", "campaign=a seq=1", "projection=strict", "others_of_the_same_error=1", "campaign=c seq=1", "others_of_the_same_error=0"}) || log.says([]string{"campaign=b"}) || log.says([]string{"campaign=d"}) {
		t.Errorf("the log is:\n%s", &log.text)
	}
}
