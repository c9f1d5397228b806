package outbox

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestRow_whatMayBeDoneAndWhyNothing(t *testing.T) {
	t.Parallel()
	worker := &WorkerSummary{Running: true, LastSeen: &noon}
	for _, c := range []struct {
		name     string
		row      Row
		campaign Campaign
		skipped  bool
		want     []Action
		why      string // of a row without actions
	}{
		{"dead head", Row{Status: Dead, IsHead: true, AttemptCount: 3}, Campaign{}, false, []Action{ActionRequeue, ActionSkip}, ""},
		{"dead behind another", Row{Status: Dead}, Campaign{HeadSeq: 2}, false, []Action{ActionRequeue}, ""},
		{"failed head", Row{Status: Failed, IsHead: true, AttemptCount: 1}, Campaign{}, false, []Action{ActionRetry, ActionDeadLetter, ActionSkip}, ""},
		{"failed behind another", Row{Status: Failed, AttemptCount: 1}, Campaign{HeadSeq: 2}, false, nil, ""},
		{"head never tried", Row{Status: Pending, IsHead: true}, Campaign{}, false, nil, ""},
		{"head to be tried again", Row{Status: Pending, IsHead: true, AttemptCount: 1}, Campaign{}, false, []Action{ActionDeadLetter}, ""},
		{"dead and skipped", Row{Status: Dead, IsHead: true}, Campaign{}, true, []Action{ActionRequeue}, ""},
		{"held", Row{Status: Processing, IsHead: true}, Campaign{}, false, nil, "A worker is processing it."},
		{"behind", Row{Status: Pending}, Campaign{HeadSeq: 2}, false, nil, "Waiting behind event 2, the head of its campaign."},
		{"skipped", Row{Status: Pending, IsHead: true}, Campaign{}, true, nil, "Skipped: the next free worker skips it."},
		{"paused", Row{Status: Pending, IsHead: true}, Campaign{Paused: &Pause{}}, false, nil, "Its campaign is paused; resume the campaign first."},
		{"due", Row{Status: Pending, IsHead: true}, Campaign{HeadSeq: 1, HeadStatus: Pending}, false, nil, "Due: waiting for a free worker."},
		{"of no status", Row{IsHead: true}, Campaign{}, false, nil, "Nothing to do."},
	} {
		d := RowDetail{Row: c.row, Campaign: c.campaign}
		if c.skipped {
			d.Event.Skipped = &Skip{}
		}
		must.Same(t, d.Actions(), c.want, c.name)
		if c.why != "" {
			must.Equal(t, d.WhyNoAction(noon, Surroundings{Worker: worker}), c.why, c.name)
		}
	}
	elsewhere := must.Get(ParseScope([]string{"b-*"})).Or(t)
	unserved := RowDetail{Row: Row{Status: Pending, IsHead: true}, Campaign: Campaign{CampaignID: "a-1", HighWaterSeq: 1, HeadSeq: 1, HeadStatus: Pending, Counts: Counts{Pending: 1}}}
	around := Surroundings{Mode: ModeOutbox, Worker: &WorkerSummary{Running: true, LastSeen: &noon, Campaigns: elsewhere}}
	must.Equal(t, unserved.WhyNoAction(noon, around), "Due, but no running instance serves its campaign.", "a row that no instance serves")
}

func TestActions_followTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []Action
	}{
		{"a campaign", Campaign{}.Actions(), []Action{ActionReplay, ActionPause}},
		{"a blocked campaign", Campaign{HeadStatus: Dead}.Actions(), []Action{ActionRequeue, ActionReplay, ActionPause}},
		{"a failing, paused campaign", Campaign{HeadStatus: Failed, Paused: &Pause{}}.Actions(), []Action{ActionRetry, ActionReplay, ActionResume}},
		{"a projection", []Action{ProjectionInfo{}.Action()}, []Action{ActionProjectionPause}},
		{"a cursor", []Action{Cursor{State: CursorLive}.Action()}, []Action{ActionProjectionPause}},
		{"a paused cursor", []Action{Cursor{State: CursorPaused}.Action()}, []Action{ActionProjectionResume}},
		{"a cursor paused for all", []Action{Cursor{State: CursorPaused, PausedForAll: true}.Action()}, []Action{""}},
		{"a quarantined cursor", []Action{Cursor{State: CursorQuarantined}.Action()}, []Action{""}},
		{"dead rows", ErrorGroup{Dead: 1}.Actions(), []Action{ActionOperationStart, ActionNoteErrors}},
		{"failed rows", ErrorGroup{Failed: 1}.Actions(), []Action{ActionRetryMany, ActionNoteErrors}},
	} {
		must.Same(t, c.got, c.want, c.name)
	}
	c := Campaign{AppliedSeq: 3}
	must.Hold(t, c.MayUnskip(Skip{Seq: 3}) && !c.MayUnskip(Skip{Seq: 2}) && !c.MayUnskip(Skip{Seq: 4, UndoneAt: &noon}), "a skip may be undone until a later event is applied, and once")
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
	act := AuditEntry{ID: 7, At: noon, Seq: 3, Action: ActionRequeue}
	for _, c := range []struct {
		name string
		got  bool
		want bool
	}{
		{"failed after it", failedSince(act, Row{Status: Failed, UpdatedAt: noon.Add(1)}), true},
		{"died after it", failedSince(act, Row{Status: Dead, UpdatedAt: noon.Add(1)}), true},
		{"dead before it", failedSince(act, Row{Status: Dead, UpdatedAt: noon}), false},
		{"in progress", failedSince(act, Row{Status: Processing, UpdatedAt: noon.Add(1)}), false},
		{"skipped after it", act.SupersededBy(AuditEntry{ID: 8, Seq: 3, Action: ActionSkip}), true},
		{"skipped before it", act.SupersededBy(AuditEntry{ID: 6, Seq: 3, Action: ActionSkip}), false},
		{"another row skipped", act.SupersededBy(AuditEntry{ID: 8, Seq: 4, Action: ActionSkip}), false},
		{"looked at", act.SupersededBy(AuditEntry{ID: 8, Seq: 3, Action: ActionReveal}), false},
	} {
		must.Equal(t, c.got, c.want, c.name)
	}
	head := Row{Status: Dead, IsHead: true, BlockedBehind: 9}
	must.Hold(t, head.Released() == 9 && (Row{Status: Dead, BlockedBehind: 9}).Released() == 0, "a requeue releases what waits for the head, and for no other row")
	blocked := Campaign{HeadStatus: Dead, Counts: Counts{Dead: 1, Pending: 9}}
	failing := Campaign{HeadStatus: Failed, Counts: Counts{Failed: 1, Pending: 9}}
	must.Hold(t, blocked.ReleasedByHead() == 9 && failing.ReleasedByHead() == 0, "a requeue of the head releases what waits, a retry what would go on anyway")
}
