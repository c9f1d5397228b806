package outbox

import (
	"slices"
	"testing"
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
		why      string // of a row about which nothing may be done
	}{
		{"dead head", Row{Status: Dead, IsHead: true, AttemptCount: 3}, Campaign{}, false, []Action{ActRequeue, ActSkip}, ""},
		{"dead behind another", Row{Status: Dead}, Campaign{HeadSeq: 2}, false, []Action{ActRequeue}, ""},
		{"failed head", Row{Status: Failed, IsHead: true, AttemptCount: 1}, Campaign{}, false, []Action{ActRetry, ActDeadLetter, ActSkip}, ""},
		{"head to be tried again", Row{Status: Pending, IsHead: true, AttemptCount: 1}, Campaign{}, false, []Action{ActDeadLetter}, ""},
		{"dead and skipped", Row{Status: Dead, IsHead: true}, Campaign{}, true, []Action{ActRequeue}, ""},
		{"held", Row{Status: Processing, IsHead: true}, Campaign{}, false, nil, "A worker is processing it."},
		{"behind", Row{Status: Pending}, Campaign{HeadSeq: 2}, false, nil, "It waits behind event 2, the head of its campaign."},
		{"skipped", Row{Status: Pending, IsHead: true}, Campaign{}, true, nil, "Skipped: the next free worker passes over it."},
		{"paused", Row{Status: Pending, IsHead: true}, Campaign{Paused: &Pause{}}, false, nil, "Its campaign is paused; resume it there."},
		{"due", Row{Status: Pending, IsHead: true}, Campaign{HeadSeq: 1, HeadStatus: Pending}, false, nil, "Due: waiting for a free worker."},
		{"of no status", Row{IsHead: true}, Campaign{}, false, nil, "Nothing needs doing."},
	} {
		d := RowDetail{Row: c.row, Campaign: c.campaign}
		if c.skipped {
			d.Event.Skipped = &Skip{}
		}
		if got := d.Actions(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if c.why != "" {
			if got := d.WhyNoAction(noon, Surroundings{Worker: worker}); got != c.why {
				t.Errorf("%s: %q, want %q", c.name, got, c.why)
			}
		}
	}
	elsewhere, err := ParseScope([]string{"b-*"})
	if err != nil {
		t.Fatal(err)
	}
	unserved := RowDetail{Row: Row{Status: Pending, IsHead: true}, Campaign: Campaign{CampaignID: "a-1", HighWaterSeq: 1, HeadSeq: 1, HeadStatus: Pending, Counts: Counts{Pending: 1}}}
	around := Surroundings{Mode: ModeOutbox, Worker: &WorkerSummary{Running: true, LastSeen: &noon, Campaigns: elsewhere}}
	if got := unserved.WhyNoAction(noon, around); got != "Due, but no running instance serves its campaign." {
		t.Errorf("a row that no instance serves: %q", got)
	}
}

func TestActions_followTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []Action
	}{
		{"a campaign", Campaign{}.Actions(), []Action{ActReplay, ActPause}},
		{"a blocked campaign", Campaign{HeadStatus: Dead}.Actions(), []Action{ActRequeue, ActReplay, ActPause}},
		{"a failing, paused campaign", Campaign{HeadStatus: Failed, Paused: &Pause{}}.Actions(), []Action{ActRetry, ActReplay, ActResume}},
		{"a projection", []Action{ProjectionInfo{}.Action()}, []Action{ActProjectionPause}},
		{"a cursor", []Action{Cursor{State: CursorLive}.Action()}, []Action{ActProjectionPause}},
		{"a paused cursor", []Action{Cursor{State: CursorPaused}.Action()}, []Action{ActProjectionResume}},
		{"a cursor paused for all", []Action{Cursor{State: CursorPaused, PausedForAll: true}.Action()}, []Action{""}},
		{"a quarantined cursor", []Action{Cursor{State: CursorQuarantined}.Action()}, []Action{""}},
		{"a publisher", Publisher{Status: PublisherActive}.Actions(false), []Action{ActPublisherPause, ActPublisherSeek}},
		{"a paused publisher that can be tested", Publisher{Status: PublisherPaused}.Actions(true), []Action{ActPublisherResume, ActPublisherSeek, ActPublisherTest}},
		{"a publisher that fails at an event", Publisher{Status: PublisherActive, ErrorCount: 2, ErrorPosition: 4, Position: 3, ErrorEvent: &EventRef{}}.Actions(false),
			[]Action{ActPublisherPause, ActPublisherResume, ActPublisherReset, ActPublisherSeek, ActPublisherSkip}},
		{"dead rows", ErrorGroup{Dead: 1}.Actions(), []Action{ActOperationStart, ActNoteErrors}},
		{"failed rows", ErrorGroup{Failed: 1}.Actions(), []Action{ActRetryMany, ActNoteErrors}},
		{"an operation", []Action{Operation{Status: OperationRunning}.Action()}, []Action{ActOperationCancel}},
		{"a stopped operation", []Action{Operation{Status: OperationStopped}.Action()}, []Action{ActOperationAcknowledge}},
		{"a run", Run{Status: RunRunning}.Actions(), []Action{ActRunCancel}},
		{"a run that ends", Run{Status: RunCancelling}.Actions(), nil},
		{"a failed run", Run{Status: RunFailed}.Actions(), []Action{ActRunResume, ActRunStart}},
		{"a run that is done", Run{Status: RunCompleted}.Actions(), []Action{ActRunStart}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if c := (Campaign{AppliedSeq: 3}); !c.MayUnskip(Skip{Seq: 3}) || c.MayUnskip(Skip{Seq: 2}) || c.MayUnskip(Skip{Seq: 4, UndoneAt: &noon}) {
		t.Error("a skip may be undone until a later event is applied, and once")
	}
}

func TestCampaignActions_areActionsOnACampaign(t *testing.T) {
	t.Parallel()
	for _, a := range campaignActions {
		if path := a.Action.Info().Path; path != "/campaigns/{campaign}/"+a.Action.Command() || a.Past == "" {
			t.Errorf("%+v is asked for at %s", a, path)
		}
	}
	gap := Campaign{HighWaterSeq: 5, AppliedSeq: 2}
	replay, _ := ActReplay.OnCampaign()
	if got := replay.Verb() + " " + replay.Does(gap); got != "Replay gives 3 events without a row a new row, due now." {
		t.Errorf("a replay %q", got)
	}
}

func TestAct_stopsSayingHowThingsAre(t *testing.T) {
	t.Parallel()
	act := Act{ID: 7, At: noon, Seq: 3, Action: ActRequeue}
	for _, c := range []struct {
		name string
		got  bool
		want bool
	}{
		{"failed after it", act.FailedSince(Row{Status: Failed, UpdatedAt: noon.Add(1)}), true},
		{"died after it", act.FailedSince(Row{Status: Dead, UpdatedAt: noon.Add(1)}), true},
		{"dead before it", act.FailedSince(Row{Status: Dead, UpdatedAt: noon}), false},
		{"in progress", act.FailedSince(Row{Status: Processing, UpdatedAt: noon.Add(1)}), false},
		{"skipped after it", act.SupersededBy(Act{ID: 8, Seq: 3, Action: ActSkip}), true},
		{"skipped before it", act.SupersededBy(Act{ID: 6, Seq: 3, Action: ActSkip}), false},
		{"another row skipped", act.SupersededBy(Act{ID: 8, Seq: 4, Action: ActSkip}), false},
		{"looked at", act.SupersededBy(Act{ID: 8, Seq: 3, Action: ActReveal}), false},
		{"a verify that found nothing", Run{Kind: RunVerify, Status: RunCompleted}.Succeeded(), true},
		{"a verify that found a drift", Run{Kind: RunVerify, Status: RunCompleted, Verdict: VerdictDrift}.Succeeded(), false},
		{"a rebuild that mended a drift", Run{Kind: RunRebuild, Status: RunCompleted, Verdict: VerdictDrift}.Succeeded(), true},
		{"a cancelled run", Run{Kind: RunReplay, Status: RunCancelled}.Succeeded(), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	head := Row{Status: Dead, IsHead: true, BlockedBehind: 9}
	if head.Released() != 9 || (Row{Status: Dead, BlockedBehind: 9}).Released() != 0 {
		t.Error("a requeue releases what waits for the head, and for no other row")
	}
	blocked := Campaign{HeadStatus: Dead, Counts: Counts{Dead: 1, Pending: 9}}
	failing := Campaign{HeadStatus: Failed, Counts: Counts{Failed: 1, Pending: 9}}
	if blocked.ReleasedByHead() != 9 || failing.ReleasedByHead() != 0 {
		t.Error("a requeue of the head releases what waits, a retry what would go on anyway")
	}
}
