package operator

import (
	"path"
	"slices"
	"strings"
)

// Action names an action in audit records, filters and routes.
type Action string

// The actions. The table below describes each.
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
	ActionRehearse             Action = "rehearse"
	ActionPublisherPause       Action = "publisher_pause"
	ActionPublisherResume      Action = "publisher_resume"
	ActionPublisherPauseAll    Action = "publisher_pause_all"
	ActionPublisherResumeAll   Action = "publisher_resume_all"
	ActionPublisherReset       Action = "publisher_reset"
	ActionPublisherSeek        Action = "publisher_seek"
	ActionPublisherSkip        Action = "publisher_skip"
	ActionPublisherTest        Action = "publisher_test"
	ActionReveal               Action = "reveal"
	ActionTokenCreate          Action = "token_create"
	ActionTokenRevoke          Action = "token_revoke"
	ActionAlertTest            Action = "alert_test"
	ActionAlertMute            Action = "alert_mute"
	ActionAlertUnmute          Action = "alert_unmute"
	ActionIntakeRetry          Action = "intake_retry"
	ActionIntakeDiscard        Action = "intake_discard"
	ActionIntakeHandOver       Action = "intake_hand_over"
	ActionJournalWentBack      Action = "journal_went_back"
	ActionAppend               Action = "append"
)

// ActionInfo describes an action for routes, pages, the audit log, the command line and the OpenAPI
// document.
type ActionInfo struct {
	Action Action
	Role   Role   // the least role that may perform it
	Words  string // on a button or at the start of a sentence: "Skip an event"
	Choice string // in a list to choose from: "skip an event"
	// Path is the POST path of the action, below the base path and below the API's, with its object
	// in braces; empty if neither has one.
	Path   string
	Effect Effect
}

// actions lists all actions. An operator repairs; an admin may also skip events, reveal hidden data
// and grant access.
var actions = []ActionInfo{
	{ActionRequeue, RoleOperator, "Requeue", "requeue a row", "/rows/{campaign}/{seq}/requeue", TriesRow},
	{ActionRequeueMany, RoleOperator, "Requeue dead rows", "requeue many rows", "/rows/requeue", RequeuesRows},
	{ActionRetry, RoleOperator, "Retry now", "retry a row now", "/rows/{campaign}/{seq}/retry", TriesRow},
	{ActionRetryMany, RoleOperator, "Retry failed rows", "retry many rows now", "/rows/retry", RetriesRows},
	{ActionDeadLetter, RoleOperator, "Dead-letter", "dead-letter a row", "/rows/{campaign}/{seq}/dead-letter", ChangesTarget},
	{ActionPause, RoleOperator, "Pause a campaign", "pause a campaign", "/campaigns/{campaign}/pause", ChangesTarget},
	{ActionResume, RoleOperator, "Resume a campaign", "resume a campaign", "/campaigns/{campaign}/resume", ChangesTarget},
	{ActionReplay, RoleOperator, "Replay a campaign", "replay a campaign", "/campaigns/{campaign}/replay", ChangesTarget},
	{ActionRepairGaps, RoleOperator, "Repair gaps", "repair gaps", "/gaps/repair", ChangesTarget},
	{ActionNoteErrors, RoleOperator, "Annotate an error", "note on an error", "/failures/groups/note", ChangesTarget},
	{ActionSkip, RoleAdmin, "Skip an event", "skip an event", "/rows/{campaign}/{seq}/skip", ChangesTarget},
	{ActionUnskip, RoleAdmin, "Undo a skip", "undo a skip", "/campaigns/{campaign}/events/{seq}/unskip", TriesRow},
	{ActionOperationStart, RoleOperator, "Requeue in an operation", "start an operation", "/operations", RequeuesRows},
	{ActionOperationCancel, RoleOperator, "Cancel an operation", "cancel an operation", "/operations/{operation}/cancel", ChangesTarget},
	{ActionOperationAcknowledge, RoleOperator, "Acknowledge an operation", "acknowledge an operation", "/operations/{operation}/acknowledge", ChangesTarget},
	{ActionProjectionPause, RoleOperator, "Pause a projection", "pause a projection", "/projections/{name}/pause", ChangesTarget},
	{ActionProjectionResume, RoleOperator, "Resume a projection", "resume a projection", "/projections/{name}/resume", ChangesTarget},
	{ActionRunStart, RoleOperator, "Start a run", "start a run", "/runs", ChangesTarget},
	{ActionRunCancel, RoleOperator, "Cancel a run", "cancel a run", "/runs/{run}/cancel", ChangesTarget},
	{ActionRunResume, RoleOperator, "Resume a run", "resume a run", "/runs/{run}/resume", ChangesTarget},
	{ActionRehearse, RoleAdmin, "Rehearse a fix", "rehearse a fix", "/rehearsals", ChangesTarget},
	{ActionPublisherPause, RoleOperator, "Pause a publisher", "pause a publisher", "/publishers/{topic}/{publisher}/pause", ChangesTarget},
	{ActionPublisherResume, RoleOperator, "Resume a publisher", "resume a publisher", "/publishers/{topic}/{publisher}/resume", ChangesTarget},
	{ActionPublisherPauseAll, RoleOperator, "Pause a publisher in all topics", "pause a publisher in all topics", "/publisher-names/{publisher}/pause", ChangesTarget},
	{ActionPublisherResumeAll, RoleOperator, "Resume a publisher in all topics", "resume a publisher in all topics", "/publisher-names/{publisher}/resume", ChangesTarget},
	{ActionPublisherReset, RoleOperator, "Reset a publisher's errors", "reset a publisher", "/publishers/{topic}/{publisher}/reset", ChangesTarget},
	{ActionPublisherSeek, RoleAdmin, "Move a publisher's position", "move a publisher's position", "/publishers/{topic}/{publisher}/seek", ChangesTarget},
	{ActionPublisherSkip, RoleAdmin, "Skip a publisher's event", "skip a publisher's event", "/publishers/{topic}/{publisher}/skip", ChangesTarget},
	{ActionPublisherTest, RoleOperator, "Send a test event", "test a publisher", "/publishers/{topic}/{publisher}/test", ChangesTarget},
	{ActionReveal, RoleAdmin, "Reveal redacted values", "reveal redacted values", "/campaigns/{campaign}/events/{seq}/reveal", ShowsHidden},
	{ActionTokenCreate, RoleAdmin, "Create a token", "create a token", "", ChangesTarget},
	{ActionTokenRevoke, RoleAdmin, "Revoke a token", "revoke a token", "/tokens/{token}/revoke", ChangesTarget},
	{ActionAlertTest, RoleOperator, "Send a test message", "test a receiver of alerts", "/alerts/receivers/{receiver}/test", ChangesTarget},
	{ActionAlertMute, RoleOperator, "Mute alerts", "mute alerts", "/alerts/rules/{rule}/mute", ChangesTarget},
	{ActionAlertUnmute, RoleOperator, "Unmute alerts", "unmute alerts", "/alerts/rules/{rule}/unmute", ChangesTarget},
	{ActionIntakeRetry, RoleOperator, "Retry a rejected row", "retry a rejected row", "/intake/{source}/rejections/{rejection}/retry", ChangesTarget},
	{ActionIntakeDiscard, RoleOperator, "Discard a rejected row", "discard a rejected row", "/intake/{source}/rejections/{rejection}/discard", ChangesTarget},
	{ActionIntakeHandOver, RoleOperator, "Hand a source over", "hand a source over to this journal", "/intake/{source}/hand-over", ChangesTarget},
	{ActionJournalWentBack, RoleAdmin, "Notice that the journal went back", "notice that the journal went back", "", ChangesTarget}, // by outboxweb itself
	{ActionAppend, RoleOperator, "Append events", "append events", "/campaigns/{campaign}/events", Appends},
}

// Effect is which displayed state an action changes.
type Effect int

// The effects of actions.
const (
	ChangesTarget Effect = iota // the object named in its record
	TriesRow                    // the row named in its record, which is retried and may fail again
	RetriesRows                 // failed rows that its record does not list individually
	RequeuesRows                // dead rows that its record does not list individually
	ShowsHidden                 // nothing
	Appends                     // the journal, which is its own record: no audit record is written
)

var infoOf = func() map[Action]ActionInfo {
	all := make(map[Action]ActionInfo, len(actions))
	for _, info := range actions {
		all[info.Action] = info
	}
	return all
}()

// Info returns the description of the action. An unknown action requires admin, and its words are
// its name.
func (a Action) Info() ActionInfo {
	if info, known := infoOf[a]; known {
		return info
	}
	return ActionInfo{Action: a, Role: RoleAdmin, Words: string(a), Choice: string(a)}
}

// Known reports whether the action exists.
func (a Action) Known() bool { _, known := infoOf[a]; return known }

// Role is the least role that may perform it; admin for an unknown action.
func (a Action) Role() Role { return a.Info().Role }

// Words is the action in words: "Skip an event". For an unknown action it is the name.
func (a Action) Words() string { return a.Info().Words }

// Effect is which displayed state the action changes.
func (a Action) Effect() Effect { return a.Info().Effect }

// commands are the names on the command line of actions whose path does not say it.
var commands = map[Action]string{
	ActionOperationStart: "requeue", ActionUnskip: "unskip", ActionRepairGaps: "gaps", ActionRunStart: "runs start", ActionRehearse: "rehearse",
	ActionPublisherPauseAll: "publishers pause", ActionPublisherResumeAll: "publishers resume",
	ActionTokenCreate: "token create", ActionTokenRevoke: "token revoke", ActionAppend: "append",
	ActionReveal:          "", // the command line reads the database itself, with the rights of its user, and hides nothing
	ActionJournalWentBack: "", // outboxweb itself does it
}

// Command is its name on the command line, such as "campaigns pause": the first and the last word of its
// path, of which those on rows need no first one. It is empty if there is no such command.
func (a Action) Command() string {
	if command, other := commands[a]; other {
		return command
	}
	words := strings.Split(strings.Trim(a.Info().Path, "/"), "/")
	return strings.TrimPrefix(words[0]+" "+path.Base(a.Info().Path), "rows ")
}

// OnPublisher is the prefix of actions on publishers.
const OnPublisher = "publisher_"

// OnPublisher reports whether the action is on a publisher.
func (a Action) OnPublisher() bool { return strings.HasPrefix(string(a), OnPublisher) }

// Audited reports whether the action writes an audit record.
func (a Action) Audited() bool { return a.Known() && a.Effect() != Appends }

// AuditedActions returns the actions that audit records may name, sorted by name.
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

// ActionsThat returns the actions with one of the effects, in the order of the table.
func ActionsThat(effects ...Effect) []Action {
	var all []Action
	for _, info := range actions {
		if slices.Contains(effects, info.Effect) {
			all = append(all, info.Action)
		}
	}
	return all
}
