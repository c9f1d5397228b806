package operator

import (
	"path"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Action names an action in audit records, filters and routes.
type Action string

// ActionInfo describes an action for routes, pages, the audit log, the command line and the OpenAPI
// document.
type ActionInfo struct {
	Action Action
	Role   Role   // the least role that may perform it
	Words  string // on a button or at the start of a sentence: "Skip an event"
	Choice string // in a list to choose from, if that is not the words: "requeue a row"
	// Path is the POST path of the action, below the base path and below the API's, with its object
	// in braces; empty if neither has one.
	Path    string
	Effect  Effect
	Command string // its name on the command line, if the path does not say it; noCommand if it has none
	// Summary is what it does, in one line without a final stop, and Details is more of it.
	Summary, Details string
	Answer           string // what the API answers with, if that is not what was done
	ID, Tag          string // of its operation in the API's document
}

// noCommand is the name of the command of an action without one.
const noCommand = "-"

// The actions, in the order in which lists have them. An operator repairs; an admin may also skip
// events, reveal hidden data and grant access.
var (
	ActionRequeue = byOperators("requeue", ActionInfo{Words: "Requeue", Choice: "requeue a row", Path: "/rows/{campaign}/{seq}/requeue", Effect: TriesRow, ID: "requeueRow", Tag: "rows",
		Summary: "A dead row becomes pending, attempts 0, due now"})
	ActionRequeueMany = byOperators("requeue_many", ActionInfo{Words: "Requeue dead rows", Choice: "requeue many rows", Path: "/rows/requeue", Effect: RequeuesRows, ID: "requeueRows", Tag: "rows",
		Summary: "Requeue dead rows that match, in order of next attempt, then seq"})
	ActionRetry = byOperators("retry", ActionInfo{Words: "Retry now", Choice: "retry a row now", Path: "/rows/{campaign}/{seq}/retry", Effect: TriesRow, ID: "retryRow", Tag: "rows",
		Summary: "A failed head becomes due now"})
	ActionRetryMany = byOperators("retry_many", ActionInfo{Words: "Retry failed rows", Choice: "retry many rows now", Path: "/rows/retry", Effect: RetriesRows, ID: "retryRows", Tag: "rows",
		Summary: "Retry failed heads now, in order of next attempt", Answer: "how many were made due"})
	ActionDeadLetter = byOperators("dead_letter", ActionInfo{Words: "Dead-letter", Choice: "dead-letter a row", Path: "/rows/{campaign}/{seq}/dead-letter", ID: "deadLetterRow", Tag: "rows",
		Summary: "A failing head becomes dead and is not retried until it is requeued"})
	ActionPause = byOperators("pause", ActionInfo{Words: "Pause a campaign", Path: "/campaigns/{campaign}/pause", ID: "pauseCampaign", Tag: "campaigns",
		Summary: "Pause a campaign: no worker applies its events until it is resumed"})
	ActionResume = byOperators("resume", ActionInfo{Words: "Resume a campaign", Path: "/campaigns/{campaign}/resume", ID: "resumeCampaign", Tag: "campaigns",
		Summary: "Resume a campaign"})
	ActionReplay = byOperators("replay", ActionInfo{Words: "Replay a campaign", Path: "/campaigns/{campaign}/replay", ID: "replayCampaign", Tag: "campaigns",
		Summary: "Enqueue every unapplied event of the campaign again"})
	ActionRepairGaps = byOperators("repair_gaps", ActionInfo{Words: "Repair gaps", Path: "/gaps/repair", Command: "gaps", ID: "repairGaps", Tag: "system",
		Summary: "Enqueue every unapplied event of every campaign again"})
	ActionNoteErrors = byOperators("note_errors", ActionInfo{Words: "Annotate an error", Choice: "note on an error", Path: "/failures/groups/note", ID: "noteFailureGroup", Tag: "failures",
		Summary: "Annotate the rows with the same error; an empty note removes it", Answer: "the current note"})
	ActionSkip = byAdmins("skip", ActionInfo{Words: "Skip an event", Path: "/rows/{campaign}/{seq}/skip", ID: "skipEvent", Tag: "events",
		Summary: "Skip a failed or dead head: it is never applied, and the rows waiting behind it are released"})
	ActionUnskip = byAdmins("unskip", ActionInfo{Words: "Undo a skip", Path: "/campaigns/{campaign}/events/{seq}/unskip", Effect: TriesRow, Command: "unskip", ID: "unskipEvent", Tag: "events",
		Summary: "Undo a skip, as long as no later event has been applied",
		Details: "The event is applied like any other."})
	ActionOperationStart = byOperators("operation_start", ActionInfo{Words: "Requeue in an operation", Choice: "start an operation", Path: "/operations", Effect: RequeuesRows, Command: "requeue", ID: "startOperation", Tag: "operations",
		Summary: "Requeue dead rows as an operation: a fixed set of rows, in waves, watched"})
	ActionOperationCancel = byOperators("operation_cancel", ActionInfo{Words: "Cancel an operation", Path: "/operations/{operation}/cancel", ID: "cancelOperation", Tag: "operations",
		Summary: "Cancel an operation: rows not attempted stay dead, rows in progress continue"})
	ActionOperationAcknowledge = byOperators("operation_acknowledge", ActionInfo{Words: "Acknowledge an operation", Path: "/operations/{operation}/acknowledge", ID: "acknowledgeOperation", Tag: "operations",
		Summary: "Acknowledge the outcome of an operation"})
	ActionProjectionPause = byOperators("projection_pause", ActionInfo{Words: "Pause a projection", Path: "/projections/{name}/pause", ID: "pauseProjection", Tag: "projections",
		Summary: "Pause a projection for a campaign or for all; the others keep going", Answer: "the outcome"})
	ActionProjectionResume = byOperators("projection_resume", ActionInfo{Words: "Resume a projection", Path: "/projections/{name}/resume", ID: "resumeProjection", Tag: "projections",
		Summary: "Resume a paused projection; where it missed events, it is behind until a replay", Answer: "the outcome"})
	ActionRunStart = byOperators("run_start", ActionInfo{Words: "Start a run", Path: "/runs", Command: "runs start", ID: "startRun", Tag: "runs",
		Summary: "Start a replay, verify or rebuild; 409 names the blocking run"})
	ActionRunCancel = byOperators("run_cancel", ActionInfo{Words: "Cancel a run", Path: "/runs/{run}/cancel", ID: "cancelRun", Tag: "runs",
		Summary: "Cancel a run: finished campaigns stay done, the others are unchanged"})
	ActionRunResume = byOperators("run_resume", ActionInfo{Words: "Resume a run", Path: "/runs/{run}/resume", ID: "resumeRun", Tag: "runs",
		Summary: "Resume an interrupted or failed run where it stopped"})
	ActionRehearse = byAdmins("rehearse", ActionInfo{Words: "Rehearse a fix", Path: "/rehearsals", Command: "rehearse", ID: "rehearse", Tag: "runs",
		Summary: "Try changed projection files on copies of blocked campaigns"})
	ActionPublisherPause = byOperators("publisher_pause", ActionInfo{Words: "Pause a publisher", Path: "/publishers/{topic}/{publisher}/pause", ID: "pausePublisher", Tag: "publishers",
		Summary: "Pause a publisher; a batch in flight finishes first"})
	ActionPublisherResume = byOperators("publisher_resume", ActionInfo{Words: "Resume a publisher", Path: "/publishers/{topic}/{publisher}/resume", ID: "resumePublisher", Tag: "publishers",
		Summary: "Resume a paused or failed publisher at once, with its errors cleared"})
	ActionPublisherPauseAll = byOperators("publisher_pause_all", ActionInfo{Words: "Pause a publisher in all topics", Path: "/publisher-names/{publisher}/pause", Command: "publishers pause", ID: "pausePublisherInAllTopics", Tag: "publishers",
		Summary: "Pause the publishers of a name in all topics at once", Answer: "the publishers that were paused, and those that were paused already"})
	ActionPublisherResumeAll = byOperators("publisher_resume_all", ActionInfo{Words: "Resume a publisher in all topics", Path: "/publisher-names/{publisher}/resume", Command: "publishers resume", ID: "resumePublisherInAllTopics", Tag: "publishers",
		Summary: "Resume the paused and failed publishers of a name in all topics at once, with their errors cleared", Answer: "the publishers that were resumed, and those that were active without errors"})
	ActionPublisherReset = byOperators("publisher_reset", ActionInfo{Words: "Reset a publisher's errors", Choice: "reset a publisher", Path: "/publishers/{topic}/{publisher}/reset", ID: "resetPublisher", Tag: "publishers",
		Summary: "Clear a publisher's errors; a pause stays"})
	ActionPublisherSeek = byAdmins("publisher_seek", ActionInfo{Words: "Move a publisher's position", Path: "/publishers/{topic}/{publisher}/seek", ID: "seekPublisher", Tag: "publishers",
		Summary: "Move a publisher's position (reset its offset), repeating or skipping events"})
	ActionPublisherSkip = byAdmins("publisher_skip", ActionInfo{Words: "Skip a publisher's event", Path: "/publishers/{topic}/{publisher}/skip", ID: "skipPublisherEvent", Tag: "publishers",
		Summary: "Skip the event that a publisher cannot deliver"})
	ActionPublisherTest = byOperators("publisher_test", ActionInfo{Words: "Send a test event", Choice: "test a publisher", Path: "/publishers/{topic}/{publisher}/test", ID: "testPublisher", Tag: "publishers",
		Summary: "Send a test event to a publisher's destination", Answer: "the outcome, also when it was not delivered"})
	ActionReveal = byAdmins("reveal", ActionInfo{Words: "Reveal redacted values", Path: "/campaigns/{campaign}/events/{seq}/reveal", Effect: ShowsHidden, Command: noCommand, ID: "revealEvent", Tag: "events",
		Summary: "The event without redaction: an audited action of an admin that requires a reason",
		Details: "Every read is audited."}) // the command line reads the database itself, with the rights of its user, and hides nothing
	ActionTokenCreate = byAdmins("token_create", ActionInfo{Words: "Create a token", Command: "token create"})
	ActionTokenRevoke = byAdmins("token_revoke", ActionInfo{Words: "Revoke a token", Path: "/tokens/{token}/revoke", Command: "token revoke", ID: "revokeToken", Tag: "tokens",
		Summary: "Revoke a token at once", Answer: "the token"})
	ActionAlertTest = byOperators("alert_test", ActionInfo{Words: "Send a test message", Choice: "test a receiver of alerts", Path: "/alerts/receivers/{receiver}/test", ID: "testAlertReceiver", Tag: "alerts",
		Summary: "Send a test message to a receiver of alerts", Answer: "the outcome, also when it was not taken"})
	ActionAlertMute = byOperators("alert_mute", ActionInfo{Words: "Mute alerts", Path: "/alerts/rules/{rule}/mute", ID: "muteAlerts", Tag: "alerts",
		Summary: "Mute an alert rule, or all of them"})
	ActionAlertUnmute = byOperators("alert_unmute", ActionInfo{Words: "Unmute alerts", Path: "/alerts/rules/{rule}/unmute", ID: "unmuteAlerts", Tag: "alerts",
		Summary: "End a mute of an alert rule, or of all of them"})
	ActionIntakeRetry = byOperators("intake_retry", ActionInfo{Words: "Retry a rejected row", Path: "/intake/{source}/rejections/{rejection}/retry", ID: "retryRejection", Tag: "intake",
		Summary: "Retry a rejected row, as it is in its table then",
		Details: "The server that holds the source does it at its next read. A row that fails again is rejected with the new reason; one that is gone from its table no longer blocks its campaign."})
	ActionIntakeDiscard = byOperators("intake_discard", ActionInfo{Words: "Discard a rejected row", Path: "/intake/{source}/rejections/{rejection}/discard", ID: "discardRejection", Tag: "intake",
		Summary: "Discard a rejected row: it is deleted from its table, and its event never enters the journal",
		Details: "The server that holds the source does it at its next read. The row's content stays in the rejection."})
	ActionIntakeHandOver = byOperators("intake_hand_over", ActionInfo{Words: "Hand a source over", Choice: "hand a source over to this journal", Path: "/intake/{source}/hand-over", ID: "handOverSource", Tag: "intake",
		Summary: "Hand a source that belongs to another journal over to this one",
		Details: "The server that has the source in its configuration takes it at its next read, within 30 s, unless it belongs to a third journal by then. The journal that had it is refused from then on."})
	ActionMark = byOperators("mark", ActionInfo{Words: "Mark a moment in the charts", Choice: "mark a moment", Path: "/markers", Command: "mark", ID: "addMarker", Tag: "system",
		Summary: "Mark this moment in all charts, such as a deploy of a service that appends", Answer: "the marker"})
	ActionTake = byOperators("take", ActionInfo{Words: "Take what is wrong", Choice: "be on what is wrong", Path: "/findings/take", Command: "take", ID: "takeFinding", Tag: "system",
		Summary: "Say that you are on something that is wrong, until it is over or given back, at most 24 h", Answer: "who is on it"})
	ActionJournalWentBack = byAdmins("journal_went_back", ActionInfo{Words: "Notice that the journal went back", Command: noCommand}) // by outboxweb itself
	ActionAppend          = byOperators("append", ActionInfo{Words: "Append events", Path: "/campaigns/{campaign}/events", Effect: Appends, Command: "append", ID: "appendEvents", Tag: "events",
		Summary: "Append one event, or a batch, all or nothing",
		Details: "A batch has at most 10,000 events (see --max-events-per-append) and twice as many tags in total; a body has at most 16 MiB. The first refused event is named, and later ones are not checked. Large bodies share a memory limit: if there is no room in time, the answer is 503 with Retry-After."})
)

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

// actions and infoOf describe all actions, in order and by name.
var (
	actions []ActionInfo
	infoOf  = map[Action]ActionInfo{}
)

// byOperators and byAdmins declare an action that is for a role.
func byOperators(name Action, info ActionInfo) Action { return declare(name, RoleOperator, info) }
func byAdmins(name Action, info ActionInfo) Action    { return declare(name, RoleAdmin, info) }

func declare(name Action, role Role, info ActionInfo) Action {
	info.Action, info.Role = name, role
	if info.Choice == "" {
		info.Choice = event.Lowered(info.Words)
	}
	actions = append(actions, info)
	infoOf[name] = info
	return name
}

// AllActions returns all actions, in the order of their declarations.
func AllActions() []Action {
	return ActionsThat(ChangesTarget, TriesRow, RetriesRows, RequeuesRows, ShowsHidden, Appends)
}

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

// Command is its name on the command line, such as "campaigns pause": the first and the last word of its
// path, of which those on rows need no first one. It is empty if there is no such command.
func (a Action) Command() string {
	switch info := a.Info(); info.Command {
	case "":
		first, _, _ := strings.Cut(strings.Trim(info.Path, "/"), "/")
		return strings.TrimPrefix(first+" "+path.Base(info.Path), "rows ")
	case noCommand:
		return ""
	default:
		return info.Command
	}
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

// ActionsThat returns the actions with one of the effects, in the order of their declarations.
func ActionsThat(effects ...Effect) []Action {
	var all []Action
	for _, info := range actions {
		if slices.Contains(effects, info.Effect) {
			all = append(all, info.Action)
		}
	}
	return all
}
