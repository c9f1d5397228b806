package outbox

import (
	"path"
	"slices"
	"strings"
)

// Action is what an action does, as audit records, filters and routes name it.
type Action string

// The actions. What is known of each stands in the table below.
const (
	ActionRequeue              Action = "requeue"
	ActionRequeueMany          Action = "requeue_many"
	ActionRetry                Action = "retry"
	ActionRetryMany            Action = "retry_many"
	ActionDeadLetter           Action = "dead_letter"
	ActionPause                Action = "pause"
	ActionResume               Action = "resume"
	ActionReplay               Action = "replay"
	ActionRepairGaps           Action = "repair_gaps"
	ActionNoteErrors           Action = "note_errors"
	ActionSkip                 Action = "skip"
	ActionUnskip               Action = "unskip"
	ActionOperationStart       Action = "operation_start"
	ActionOperationCancel      Action = "operation_cancel"
	ActionOperationAcknowledge Action = "operation_acknowledge"
	ActionProjectionPause      Action = "projection_pause"
	ActionProjectionResume     Action = "projection_resume"
	ActionRunStart             Action = "run_start"
	ActionRunCancel            Action = "run_cancel"
	ActionRunResume            Action = "run_resume"
	ActionPublisherPause       Action = "publisher_pause"
	ActionPublisherResume      Action = "publisher_resume"
	ActionPublisherReset       Action = "publisher_reset"
	ActionPublisherSeek        Action = "publisher_seek"
	ActionPublisherSkip        Action = "publisher_skip"
	ActionPublisherTest        Action = "publisher_test"
	ActionReveal               Action = "reveal"
	ActionTokenCreate          Action = "token_create"
	ActionTokenRevoke          Action = "token_revoke"
	ActionAppend               Action = "append"
)

// ActionInfo is what routes, pages, the audit log, the command line and the
// OpenAPI document know of an action.
type ActionInfo struct {
	Action Action
	Role   Role   // the least that may
	Words  string // as a button or a sentence about it begins: "Skip an event"
	Choice string // in a list to choose from: "skip an event"
	// Path is where it is asked for by POST, below the base path and below that
	// of the API, with what it is about in braces; empty where neither does it.
	Path    string
	Effect  Effect
	confirm *confirmation // nil: never asks for a phrase
}

// actions are all actions. An operator repairs; an admin also passes over
// events, shows what is hidden, and lets others in.
var actions = []ActionInfo{
	{ActionRequeue, RoleOperator, "Requeue", "requeue a row", "/rows/{campaign}/{seq}/requeue", TriesRow, byRelease},
	{ActionRequeueMany, RoleOperator, "Requeue dead rows", "requeue many rows", "/rows/requeue", RequeuesRows, byRequeue},
	{ActionRetry, RoleOperator, "Retry now", "retry a row now", "/rows/{campaign}/{seq}/retry", TriesRow, nil},
	{ActionRetryMany, RoleOperator, "Retry failed rows", "retry many rows now", "/rows/retry", RetriesRows, nil},
	{ActionDeadLetter, RoleOperator, "Dead-letter", "dead-letter a row", "/rows/{campaign}/{seq}/dead-letter", ChangesTarget, nil},
	{ActionPause, RoleOperator, "Pause a campaign", "pause a campaign", "/campaigns/{campaign}/pause", ChangesTarget, nil},
	{ActionResume, RoleOperator, "Resume a campaign", "resume a campaign", "/campaigns/{campaign}/resume", ChangesTarget, nil},
	{ActionReplay, RoleOperator, "Replay a campaign", "replay a campaign", "/campaigns/{campaign}/replay", ChangesTarget, nil},
	{ActionRepairGaps, RoleOperator, "Repair gaps", "repair gaps", "/gaps/repair", ChangesTarget, nil},
	{ActionNoteErrors, RoleOperator, "Annotate an error", "note on an error", "/failures/groups/note", ChangesTarget, nil},
	{ActionSkip, RoleAdmin, "Skip an event", "skip an event", "/rows/{campaign}/{seq}/skip", ChangesTarget, bySkip},
	{ActionUnskip, RoleAdmin, "Undo a skip", "undo a skip", "/campaigns/{campaign}/events/{seq}/unskip", TriesRow, nil},
	{ActionOperationStart, RoleOperator, "Requeue in an operation", "start an operation", "/operations", RequeuesRows, byRequeue},
	{ActionOperationCancel, RoleOperator, "Cancel an operation", "cancel an operation", "/operations/{operation}/cancel", ChangesTarget, nil},
	{ActionOperationAcknowledge, RoleOperator, "Acknowledge an operation", "acknowledge an operation", "/operations/{operation}/acknowledge", ChangesTarget, nil},
	{ActionProjectionPause, RoleOperator, "Pause a projection", "pause a projection", "/projections/{name}/pause", ChangesTarget, nil},
	{ActionProjectionResume, RoleOperator, "Resume a projection", "resume a projection", "/projections/{name}/resume", ChangesTarget, nil},
	{ActionRunStart, RoleOperator, "Start a run", "start a run", "/runs", ChangesTarget, nil},
	{ActionRunCancel, RoleOperator, "Cancel a run", "cancel a run", "/runs/{run}/cancel", ChangesTarget, nil},
	{ActionRunResume, RoleOperator, "Resume a run", "resume a run", "/runs/{run}/resume", ChangesTarget, nil},
	{ActionPublisherPause, RoleOperator, "Pause a publisher", "pause a publisher", "/publishers/{topic}/{publisher}/pause", ChangesTarget, nil},
	{ActionPublisherResume, RoleOperator, "Resume a publisher", "resume a publisher", "/publishers/{topic}/{publisher}/resume", ChangesTarget, nil},
	{ActionPublisherReset, RoleOperator, "Reset a publisher's errors", "reset a publisher", "/publishers/{topic}/{publisher}/reset", ChangesTarget, nil},
	{ActionPublisherSeek, RoleAdmin, "Move a publisher's position", "move a publisher's position", "/publishers/{topic}/{publisher}/seek", ChangesTarget, bySeek},
	{ActionPublisherSkip, RoleAdmin, "Skip a publisher's event", "skip a publisher's event", "/publishers/{topic}/{publisher}/skip", ChangesTarget, byBlame},
	{ActionPublisherTest, RoleOperator, "Send a test event", "test a publisher", "/publishers/{topic}/{publisher}/test", ChangesTarget, nil},
	{ActionReveal, RoleAdmin, "Reveal redacted values", "reveal redacted values", "/campaigns/{campaign}/events/{seq}/reveal", ShowsHidden, nil},
	{ActionTokenCreate, RoleAdmin, "Create a token", "create a token", "", ChangesTarget, nil},
	{ActionTokenRevoke, RoleAdmin, "Revoke a token", "revoke a token", "/tokens/{token}/revoke", ChangesTarget, nil},
	{ActionAppend, RoleOperator, "Append events", "append events", "/campaigns/{campaign}/events", Appends, nil},
}

// CampaignAction is an action on a campaign, besides those on its head, as pages
// and commands put it.
type CampaignAction struct {
	Action  Action
	Past    string // what was done to it: "Paused"
	does    func(Campaign) string
	offered func(Campaign) bool
	Hint    string // what the reason may be about
	Primary bool   // it is what the campaign needs

	// SeesHead and Terse are of what mends a campaign without a decision: it is
	// refused when the head is another than the one shown, and asks for a reason
	// only where one is needed.
	SeesHead, Terse bool
}

// campaignActions are in the order in which pages have them.
var campaignActions = []CampaignAction{
	{Action: ActionReplay, Past: "Replayed", does: replayDoes, Hint: "why the rows are missing", SeesHead: true, Terse: true},
	{Action: ActionPause, Past: "Paused", does: always("stops applying its events; new events keep queueing."), Hint: "why it must stop",
		offered: func(c Campaign) bool { return c.Paused == nil }},
	{Action: ActionResume, Past: "Resumed", does: always("lets workers apply its events again."), Hint: "why it can continue", Primary: true,
		offered: func(c Campaign) bool { return c.Paused != nil }},
}

func always(text string) func(Campaign) string { return func(Campaign) string { return text } }

func replayDoes(c Campaign) string {
	if c.Gap() > 0 {
		return "enqueues " + Count(c.Gap(), "event", "events") + " without a row, due now."
	}
	return "enqueues events that have no row; there are none now."
}

// Verb begins a sentence about the action, and is its button: "Pause".
func (a CampaignAction) Verb() string {
	verb, _, _ := strings.Cut(a.Action.Words(), " ")
	return verb
}

// Does goes on after the verb: "stops applying its events; new events keep queueing."
func (a CampaignAction) Does(c Campaign) string {
	if a.does == nil {
		return "it."
	}
	return a.does(c)
}

// OnCampaign is the action as one on a campaign; it reports false for others.
func (a Action) OnCampaign() (CampaignAction, bool) {
	i := slices.IndexFunc(campaignActions, func(one CampaignAction) bool { return one.Action == a })
	if i < 0 {
		return CampaignAction{}, false
	}
	return campaignActions[i], true
}

// Offered are the actions on the campaign that it may take as it is.
func (c Campaign) Offered() []CampaignAction {
	var all []CampaignAction
	for _, a := range campaignActions {
		if a.offered == nil || a.offered(c) {
			all = append(all, a)
		}
	}
	return all
}

// Effect is what an action changes of what somebody was shown before it.
type Effect int

// The effects of actions.
const (
	ChangesTarget Effect = iota // what its record names
	TriesRow                    // the row that its record names, which is tried again and may fail again
	RetriesRows                 // failed rows that its record does not name one by one
	RequeuesRows                // dead rows that its record does not name one by one
	ShowsHidden                 // nothing
	Appends                     // the journal, which is a record by itself: it leaves none in the audit log
)

var infoOf = func() map[Action]ActionInfo {
	all := make(map[Action]ActionInfo, len(actions))
	for _, info := range actions {
		all[info.Action] = info
	}
	return all
}()

// Info is what is known of the action. One that nobody knows is an admin's, and
// its words are its name.
func (a Action) Info() ActionInfo {
	if info, known := infoOf[a]; known {
		return info
	}
	return ActionInfo{Action: a, Role: RoleAdmin, Words: string(a), Choice: string(a)}
}

// Known reports whether there is such an action.
func (a Action) Known() bool { _, known := infoOf[a]; return known }

// Role is the least role that may do it; admin for an action that nobody knows.
func (a Action) Role() Role { return a.Info().Role }

// Words is the action as a person reads it: "Skip an event". An action that
// nobody knows is its name.
func (a Action) Words() string { return a.Info().Words }

// Effect is what it changes of what somebody was shown before it.
func (a Action) Effect() Effect { return a.Info().Effect }

// Command is what it is called on the command line, behind what it is about: the
// "pause" of "campaigns pause".
func (a Action) Command() string { return path.Base(a.Info().Path) }

// OnPublisher begins the actions of actions on publishers.
const OnPublisher = "publisher_"

// OnPublisher reports whether the action is one of actions on publishers.
func (a Action) OnPublisher() bool { return strings.HasPrefix(string(a), OnPublisher) }

// Audited reports whether it leaves an audit record.
func (a Action) Audited() bool { return a.Known() && a.Effect() != Appends }

// AuditedActions are the actions that audit records may name, by name.
func AuditedActions() []Action {
	var all []Action
	for _, info := range actions {
		if info.Action.Audited() {
			all = append(all, info.Action)
		}
	}
	slices.Sort(all)
	return all
}

// ActionsThat are the actions with one of the effects, in the order of the table.
func ActionsThat(effects ...Effect) []Action {
	var all []Action
	for _, info := range actions {
		if slices.Contains(effects, info.Effect) {
			all = append(all, info.Action)
		}
	}
	return all
}
