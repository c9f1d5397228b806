package outbox

import (
	"maps"
	"slices"
	"strings"
)

// Action is what an act does, as audit records, filters and metrics name it.
type Action string

// The actions. Whoever adds one says in actionRoles who may.
const (
	ActRequeue              Action = "requeue"
	ActRequeueMany          Action = "requeue_many"
	ActRetry                Action = "retry"
	ActRetryMany            Action = "retry_many"
	ActDeadLetter           Action = "dead_letter"
	ActPause                Action = "pause"
	ActResume               Action = "resume"
	ActReplay               Action = "replay"
	ActRepairGaps           Action = "repair_gaps"
	ActNoteErrors           Action = "note_errors"
	ActSkip                 Action = "skip"
	ActUnskip               Action = "unskip"
	ActOperationStart       Action = "operation_start"
	ActOperationCancel      Action = "operation_cancel"
	ActOperationAcknowledge Action = "operation_acknowledge"
	ActProjectionPause      Action = "projection_pause"
	ActProjectionResume     Action = "projection_resume"
	ActRunStart             Action = "run_start"
	ActRunCancel            Action = "run_cancel"
	ActRunResume            Action = "run_resume"
	ActPublisherPause       Action = "publisher_pause"
	ActPublisherResume      Action = "publisher_resume"
	ActPublisherReset       Action = "publisher_reset"
	ActPublisherSeek        Action = "publisher_seek"
	ActPublisherSkip        Action = "publisher_skip"
	ActPublisherTest        Action = "publisher_test"
	ActReveal               Action = "reveal"
	ActTokenCreate          Action = "token_create"
	ActTokenRevoke          Action = "token_revoke"
	ActAppend               Action = "append" // has a role, but no audit record: the journal is one
)

// actionRoles is the least role for each action: an operator repairs, an admin
// also passes over events, shows what is hidden, and lets others in.
var actionRoles = map[Action]Role{
	ActRequeue:              RoleOperator,
	ActRequeueMany:          RoleOperator,
	ActRetry:                RoleOperator,
	ActRetryMany:            RoleOperator,
	ActDeadLetter:           RoleOperator,
	ActPause:                RoleOperator,
	ActResume:               RoleOperator,
	ActReplay:               RoleOperator,
	ActRepairGaps:           RoleOperator,
	ActNoteErrors:           RoleOperator,
	ActSkip:                 RoleAdmin,
	ActUnskip:               RoleAdmin,
	ActOperationStart:       RoleOperator,
	ActOperationCancel:      RoleOperator,
	ActOperationAcknowledge: RoleOperator,
	ActProjectionPause:      RoleOperator,
	ActProjectionResume:     RoleOperator,
	ActRunStart:             RoleOperator,
	ActRunCancel:            RoleOperator,
	ActRunResume:            RoleOperator,
	ActPublisherPause:       RoleOperator,
	ActPublisherResume:      RoleOperator,
	ActPublisherReset:       RoleOperator,
	ActPublisherSeek:        RoleAdmin,
	ActPublisherSkip:        RoleAdmin,
	ActPublisherTest:        RoleOperator,
	ActReveal:               RoleAdmin,
	ActTokenCreate:          RoleAdmin,
	ActTokenRevoke:          RoleAdmin,
	ActAppend:               RoleOperator,
}

// Role is the least role that may do it; admin for an action that nobody knows.
func (a Action) Role() Role {
	if role, known := actionRoles[a]; known {
		return role
	}
	return RoleAdmin
}

// Known reports whether there is such an action.
func (a Action) Known() bool { _, known := actionRoles[a]; return known }

// OnPublisher begins the actions of acts on publishers.
const OnPublisher = "publisher_"

// OnPublisher reports whether the action is one of acts on publishers.
func (a Action) OnPublisher() bool { return strings.HasPrefix(string(a), OnPublisher) }

// Audited reports whether it leaves an audit record.
func (a Action) Audited() bool { return a.Known() && a != ActAppend }

// AuditedActions are the actions that audit records may name, by name.
func AuditedActions() []Action {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(actionRoles)), func(a Action) bool { return !a.Audited() })
}
