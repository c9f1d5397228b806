package campaign

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

func TestRow_whatMayBeDoneAndWhyNothing(t *testing.T) {
	t.Parallel()
	worker := &WorkerSummary{Running: true, LastSeen: &noon}
	for _, c := range []struct {
		name     string
		row      Row
		campaign Campaign
		skipped  bool
		want     []operator.Action
		why      string // of a row without actions
	}{
		{"dead head", Row{Status: event.Dead, IsHead: true, AttemptCount: 3}, Campaign{}, false, []operator.Action{operator.ActionRequeue, operator.ActionSkip}, ""},
		{"dead behind another", Row{Status: event.Dead}, Campaign{HeadSeq: 2}, false, []operator.Action{operator.ActionRequeue}, ""},
		{"failed head", Row{Status: event.Failed, IsHead: true, AttemptCount: 1}, Campaign{}, false, []operator.Action{operator.ActionRetry, operator.ActionDeadLetter, operator.ActionSkip}, ""},
		{"failed behind another", Row{Status: event.Failed, AttemptCount: 1}, Campaign{HeadSeq: 2}, false, nil, ""},
		{"head never tried", Row{Status: event.Pending, IsHead: true}, Campaign{}, false, nil, ""},
		{"head to be tried again", Row{Status: event.Pending, IsHead: true, AttemptCount: 1}, Campaign{}, false, []operator.Action{operator.ActionDeadLetter}, ""},
		{"dead and skipped", Row{Status: event.Dead, IsHead: true}, Campaign{}, true, []operator.Action{operator.ActionRequeue}, ""},
		{"held", Row{Status: event.Processing, IsHead: true}, Campaign{}, false, nil, "A worker is processing it."},
		{"behind", Row{Status: event.Pending}, Campaign{HeadSeq: 2}, false, nil, "Waiting behind event 2, the head of its campaign."},
		{"skipped", Row{Status: event.Pending, IsHead: true}, Campaign{}, true, nil, "Skipped: the next free worker skips it."},
		{"paused", Row{Status: event.Pending, IsHead: true}, Campaign{Paused: &Pause{}}, false, nil, "Its campaign is paused; resume the campaign first."},
		{"due", Row{Status: event.Pending, IsHead: true}, Campaign{HeadSeq: 1, HeadStatus: event.Pending}, false, nil, "Due: waiting for a free worker."},
		{"of no status", Row{IsHead: true}, Campaign{}, false, nil, "Nothing to do."},
	} {
		d := RowDetail{Row: c.row, Campaign: c.campaign}
		if c.skipped {
			d.Event.Skipped = &event.Skip{}
		}
		must.Same(t, d.Actions(), c.want, c.name)
		if c.why != "" {
			must.Equal(t, d.WhyNoAction(noon, Surroundings{Worker: worker}), c.why, c.name)
		}
	}
	elsewhere := must.Get(ParseScope([]string{"b-*"})).Or(t)
	unserved := RowDetail{Row: Row{Status: event.Pending, IsHead: true}, Campaign: Campaign{CampaignID: "a-1", HighWaterSeq: 1, HeadSeq: 1, HeadStatus: event.Pending, Counts: Counts{Pending: 1}}}
	around := Surroundings{Mode: ModeOutbox, Worker: &WorkerSummary{Running: true, LastSeen: &noon, Campaigns: elsewhere}}
	must.Equal(t, unserved.WhyNoAction(noon, around), "Due, but no running instance serves its campaign.", "a row that no instance serves")
}

func TestActions_followTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []operator.Action
	}{
		{"a campaign", Campaign{}.Actions(), []operator.Action{operator.ActionReplay, operator.ActionPause}},
		{"a blocked campaign", Campaign{HeadStatus: event.Dead}.Actions(), []operator.Action{operator.ActionRequeue, operator.ActionReplay, operator.ActionPause}},
		{"a failing, paused campaign", Campaign{HeadStatus: event.Failed, Paused: &Pause{}}.Actions(), []operator.Action{operator.ActionRetry, operator.ActionReplay, operator.ActionResume}},
		{"a projection", []operator.Action{ProjectionInfo{}.Action()}, []operator.Action{operator.ActionProjectionPause}},
		{"a cursor", []operator.Action{Cursor{State: CursorLive}.Action()}, []operator.Action{operator.ActionProjectionPause}},
		{"a paused cursor", []operator.Action{Cursor{State: CursorPaused}.Action()}, []operator.Action{operator.ActionProjectionResume}},
		{"a cursor paused for all", []operator.Action{Cursor{State: CursorPaused, PausedForAll: true}.Action()}, []operator.Action{""}},
		{"a quarantined cursor", []operator.Action{Cursor{State: CursorQuarantined}.Action()}, []operator.Action{""}},
		{"dead rows", ErrorGroup{Dead: 1}.Actions(), []operator.Action{operator.ActionOperationStart, operator.ActionNoteErrors}},
		{"failed rows", ErrorGroup{Failed: 1}.Actions(), []operator.Action{operator.ActionRetryMany, operator.ActionNoteErrors}},
	} {
		must.Same(t, c.got, c.want, c.name)
	}
	c := Campaign{AppliedSeq: 3}
	must.Hold(t, c.MayUnskip(event.Skip{Seq: 3}) && !c.MayUnskip(event.Skip{Seq: 2}) && !c.MayUnskip(event.Skip{Seq: 4, UndoneAt: &noon}), "a skip may be undone until a later event is applied, and once")
}

func TestCampaignActions_areActionsOnACampaign(t *testing.T) {
	t.Parallel()
	gap := Campaign{HighWaterSeq: 5, AppliedSeq: 2}
	offered := append(gap.Offered(), Campaign{Paused: &Pause{}}.Offered()...)
	must.Equal(t, len(offered), 4, "replay and pause, replay and resume")
	for _, a := range offered {
		path := a.Action.Info().Path
		must.Hold(t, "campaigns "+strings.TrimPrefix(path, "/campaigns/{campaign}/") == a.Action.Command(), "%+v is asked for at %s", a, path)
	}
	must.Equal(t, offered[0].Verb()+" "+offered[0].Does, "Replay enqueues 3 events without a row, due now.", "a replay")
}

func TestAction_stopsSayingHowThingsAre(t *testing.T) {
	t.Parallel()
	act := operator.AuditEntry{ID: 7, At: noon, Seq: 3, Action: operator.ActionRequeue}
	for _, c := range []struct {
		name string
		got  bool
		want bool
	}{
		{"failed after it", failedSince(act, Row{Status: event.Failed, UpdatedAt: noon.Add(1)}), true},
		{"died after it", failedSince(act, Row{Status: event.Dead, UpdatedAt: noon.Add(1)}), true},
		{"dead before it", failedSince(act, Row{Status: event.Dead, UpdatedAt: noon}), false},
		{"in progress", failedSince(act, Row{Status: event.Processing, UpdatedAt: noon.Add(1)}), false},
		{"skipped after it", act.SupersededBy(operator.AuditEntry{ID: 8, Seq: 3, Action: operator.ActionSkip}), true},
		{"skipped before it", act.SupersededBy(operator.AuditEntry{ID: 6, Seq: 3, Action: operator.ActionSkip}), false},
		{"another row skipped", act.SupersededBy(operator.AuditEntry{ID: 8, Seq: 4, Action: operator.ActionSkip}), false},
		{"looked at", act.SupersededBy(operator.AuditEntry{ID: 8, Seq: 3, Action: operator.ActionReveal}), false},
	} {
		must.Equal(t, c.got, c.want, c.name)
	}
	head := Row{Status: event.Dead, IsHead: true, BlockedBehind: 9}
	must.Hold(t, head.Released() == 9 && (Row{Status: event.Dead, BlockedBehind: 9}).Released() == 0, "a requeue releases what waits for the head, and for no other row")
	blocked := Campaign{HeadStatus: event.Dead, Counts: Counts{Dead: 1, Pending: 9}}
	failing := Campaign{HeadStatus: event.Failed, Counts: Counts{Failed: 1, Pending: 9}}
	must.Hold(t, blocked.ReleasedByHead() == 9 && failing.ReleasedByHead() == 0, "a requeue of the head releases what waits, a retry what would go on anyway")
}
