package intake_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

type desk struct {
	*storetest.Fixture
	intake *intake.Intake
}

func (d *desk) left() bool {
	return d.Number(`select count(*) from intake_rejections where status = 'open'`) == 1
}

// rejects makes a rejection as a process that has the source would.
func rejects(d *desk) {
	d.Exec(`insert into intake_sources (source) values ('shop')`)
	d.Exec(`insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ('shop', '7', 'o-1', 'e-1', 'order.paid', '{}', 2, 'the payload is no JSON', 1)`)
}

var kinds = storetest.Kinds[*desk]{
	Open: func(tb testing.TB, o ...func(*store.Options)) *desk {
		f := storetest.Open(tb, o...)
		return &desk{f, intake.New(f.Store)}
	},
	Base: func(d *desk) *storetest.Fixture { return d.Fixture },
	Beside: func(d *desk) *desk {
		f := d.Fixture.Beside()
		return &desk{f, intake.New(f.Store)}
	},
	All: []storetest.Kind[*desk]{
		{Action: "intake_retry", Scene: rejects, Undone: (*desk).left,
			Do: func(d *desk, o operator.Command) (any, error) { return d.intake.Retry(d.Ctx, o, "shop", 1) }},
		{Action: "intake_discard", Scene: rejects, Undone: (*desk).left,
			Do: func(d *desk, o operator.Command) (any, error) {
				o.Confirm, o.Reason = "discard shop 1", cmp.Or(o.Reason, "sent twice") // it always needs both
				return d.intake.Discard(d.Ctx, o, "shop", 1)
			}},
		{Action: "intake_hand_over", Scene: func(d *desk) {
			d.Exec(`insert into intake_sources (source, owner, owned_since) values ('shop', 'old', 7)`)
		}, Undone: func(d *desk) bool { return d.Number(`select count(*) from intake_sources where handed_over = 0`) == 1 },
			Do: func(d *desk, o operator.Command) (any, error) {
				o.Confirm, o.Reason = "hand over shop", cmp.Or(o.Reason, "moved") // it always needs both
				return d.intake.HandOver(d.Ctx, o, "shop")
			}},
	},
}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
	kinds.MustHave(t, func(a operator.Action) bool { return strings.HasPrefix(string(a), "intake_") })
}
