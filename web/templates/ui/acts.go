package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// ActionSentence describes an action from its audit record.
func ActionSentence(a operator.AuditEntry) string {
	subject := fmt.Sprintf("event %d of campaign %s", a.Seq, a.CampaignID)
	switch a.Action {
	case operator.ActionRequeue:
		return "Requeued " + subject + ": pending again, with zero attempts, due now."
	case operator.ActionRetry:
		return "Retried " + subject + ": due now."
	case operator.ActionDeadLetter:
		return "Dead-lettered " + subject + ": not retried until it is requeued."
	case operator.ActionRequeueMany:
		var d campaign.Requeued
		if json.Unmarshal(a.After, &d) == nil {
			return fmt.Sprintf("Requeued %s: %s, and %s behind them released.", Count(d.Requeued, "dead row", "dead rows"),
				Count(d.Heads, "head", "heads"), Count(d.Released, "row", "rows"))
		}
		return "Requeued dead rows."
	case operator.ActionSkip:
		return "Skipped " + subject + ": no projection will apply it; the rows behind it continue unless the campaign is paused."
	case operator.ActionUnskip:
		return "Un-skipped " + subject + ": it will be applied like any other event."
	case operator.ActionOperationStart, operator.ActionOperationCancel, operator.ActionOperationAcknowledge:
		return operationSentence(a)
	case operator.ActionProjectionPause, operator.ActionProjectionResume:
		return pauseSentence(a)
	case operator.ActionRunStart, operator.ActionRunCancel, operator.ActionRunResume:
		return runActionSentence(a)
	case operator.ActionRehearse:
		return rehearseSentence(a)
	case operator.ActionPublisherPauseAll, operator.ActionPublisherResumeAll:
		return publishersActionSentence(a)
	case operator.ActionPublisherPause, operator.ActionPublisherResume, operator.ActionPublisherReset, operator.ActionPublisherSeek, operator.ActionPublisherSkip, operator.ActionPublisherTest:
		return publisherActionSentence(a)
	case operator.ActionRetryMany:
		var d campaign.Retried
		if json.Unmarshal(a.After, &d) == nil {
			return fmt.Sprintf("Retried %s: due now.", Count(d.Retried, "failed row", "failed rows"))
		}
		return "Retried failed rows: due now."
	case operator.ActionNoteErrors:
		return "Note saved."
	case operator.ActionReveal:
		return "Revealed redacted values of " + subject + "."
	case operator.ActionReplay, operator.ActionRepairGaps:
		return repairSentence(a)
	case operator.ActionAlertTest, operator.ActionAlertMute, operator.ActionAlertUnmute:
		return alertActionSentence(a)
	case operator.ActionIntakeRetry, operator.ActionIntakeDiscard, operator.ActionIntakeHandOver:
		return intakeActionSentence(a)
	case operator.ActionTokenCreate, operator.ActionTokenRevoke:
		return tokenSentence(a)
	case operator.ActionPause:
		return "Paused campaign " + a.CampaignID + "."
	case operator.ActionResume:
		return "Resumed campaign " + a.CampaignID + "."
	case operator.ActionMark:
		var m samples.Named
		if json.Unmarshal(a.After, &m) == nil && m.Text != "" {
			return Visible(m.Text)
		}
	case operator.ActionTake:
		var t finding.Taken
		if json.Unmarshal(a.After, &t) == nil {
			return Visible(event.Sentence(t.Says()))
		}
	case operator.ActionJournalWentBack:
		var w campaign.WentBack
		if json.Unmarshal(a.After, &w) == nil {
			return w.Says()
		}
	}
	return "Done: " + string(a.Action) + "."
}

func repairSentence(a operator.AuditEntry) string {
	what := "Repaired gaps"
	if a.Action == operator.ActionReplay {
		what = "Replayed campaign " + a.CampaignID
	}
	var d campaign.Repaired
	if json.Unmarshal(a.After, &d) != nil {
		return what + "."
	}
	if d.Inserted == 0 && d.Removed == 0 {
		return what + ": nothing was missing."
	}
	return fmt.Sprintf("%s: %s enqueued, %s of applied events removed.", what,
		Count(d.Inserted, "event", "events"), Count(d.Removed, "row", "rows"))
}

func alertActionSentence(a operator.AuditEntry) string {
	var d struct {
		Rule     string    `json:"rule"`
		Receiver string    `json:"receiver"`
		Until    time.Time `json:"until"`
		subscription.TestDelivery
	}
	_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	what := "rule " + d.Rule
	if d.Rule == alerts.AllAlerts {
		what = "all alert rules"
	}
	switch {
	case a.Action == operator.ActionAlertMute:
		return "Muted " + what + " until " + StampTime(d.Until) + "."
	case a.Action == operator.ActionAlertUnmute:
		return "Unmuted " + what + "."
	case d.OK:
		return "Sent a test message to receiver " + d.Receiver + ": taken in " + tookText(d.Seconds) + "."
	}
	return "Sent a test message to receiver " + d.Receiver + ": " + Visible(FirstLine(d.Error))
}

func StampTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// tokenSentence describes an action on a token.
func tokenSentence(a operator.AuditEntry) string {
	var d struct {
		ID   int64         `json:"token_id"`
		Role operator.Role `json:"role"`
		Note string        `json:"note"`
	}
	if json.Unmarshal(a.After, &d) != nil || d.ID == 0 {
		return "Done: " + string(a.Action) + "."
	}
	what := "token " + Itoa(d.ID) + ", with the role " + string(d.Role)
	if d.Note != "" {
		what += " (" + d.Note + ")"
	}
	if a.Action == operator.ActionTokenRevoke {
		return "Revoked " + what + "."
	}
	return "Created " + what + "."
}

// tokenNote is the note of an action's token, from its audit record.
func tokenNote(a operator.AuditEntry) string {
	var d struct {
		Note string `json:"note"`
	}
	if a.Action == operator.ActionTokenCreate || a.Action == operator.ActionTokenRevoke {
		_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	}
	return d.Note
}

// intakeActionSentence describes an action on a source or a rejected row.
func intakeActionSentence(a operator.AuditEntry) string {
	var d struct {
		Source string `json:"source"`
		ID     int64  `json:"rejection"`
		From   string `json:"from"`
	}
	_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	if a.Action == operator.ActionIntakeHandOver {
		return "Source " + d.Source + " is taken from journal " + d.From + " at the next read."
	}
	if a.Action == operator.ActionIntakeRetry {
		return "Rejected row " + Itoa(d.ID) + " of source " + d.Source + " is retried at the next read."
	}
	return "Rejected row " + Itoa(d.ID) + " of source " + d.Source + " is deleted at the next read."
}

// operationSentence describes an action on an operation from its audit record.
func operationSentence(a operator.AuditEntry) string {
	var d struct {
		OperationID int64                      `json:"operation_id"`
		Rows        int64                      `json:"rows"`
		Heads       int64                      `json:"heads"`
		Released    int64                      `json:"released"`
		Totals      operations.OperationTotals `json:"totals"`
	}
	if json.Unmarshal(a.After, &d) != nil {
		return "Done: " + string(a.Action) + "."
	}
	switch a.Action {
	case operator.ActionOperationStart:
		return fmt.Sprintf("Started operation %d: requeue of %s, %s; %s waiting behind them.", d.OperationID,
			Count(d.Rows, "dead row", "dead rows"), Count(d.Heads, "head", "heads"), Count(d.Released, "row", "rows"))
	case operator.ActionOperationCancel:
		return fmt.Sprintf("Cancelled operation %d: %s not attempted, %s in progress.", d.OperationID,
			Count(d.Totals.Left, "row", "rows"), Num(d.Totals.Unwatched))
	default:
		return fmt.Sprintf("Acknowledged operation %d.", d.OperationID)
	}
}

// rehearseSentence describes the start of a rehearsal from its audit record.
func rehearseSentence(a operator.AuditEntry) string {
	var after struct {
		RunID int64  `json:"run_id"`
		Scope string `json:"scope"`
	}
	_ = json.Unmarshal(a.After, &after)
	return fmt.Sprintf("Started run %d: rehearse %s.", after.RunID, after.Scope)
}

// runActionSentence describes an action on a run from its audit record.
func runActionSentence(a operator.AuditEntry) string {
	var after struct {
		RunID  int64            `json:"run_id"`
		Scope  string           `json:"scope"`
		Status replay.RunStatus `json:"status"`
	}
	_ = json.Unmarshal(a.After, &after)
	run := "run " + Itoa(after.RunID)
	switch {
	case a.Action == operator.ActionRunStart:
		var before struct {
			Kind string `json:"kind"`
		}
		_ = json.Unmarshal(a.Before, &before)
		return fmt.Sprintf("Started %s: %s of %s.", run, before.Kind, after.Scope)
	case a.Action == operator.ActionRunCancel && after.Status == replay.RunCancelling:
		return fmt.Sprintf("Cancelled %s; its worker is stopping.", run)
	case a.Action == operator.ActionRunCancel:
		return fmt.Sprintf("Cancelled %s.", run)
	default:
		return fmt.Sprintf("Resumed %s where it stopped.", run)
	}
}

// pauseSentence describes the outcome of pausing or resuming a projection.
func pauseSentence(a operator.AuditEntry) string {
	var h campaign.ProjectionPause
	if json.Unmarshal(a.After, &h) != nil {
		return "Done: " + string(a.Action) + "."
	}
	where := "for all campaigns"
	if h.CampaignID != "" {
		where = "for campaign " + h.CampaignID
	}
	said := fmt.Sprintf("Resumed projection %s %s", h.Projection, where)
	switch {
	case a.Action == operator.ActionProjectionPause && h.CampaignID == "":
		return fmt.Sprintf("Paused projection %s %s.", h.Projection, where)
	case a.Action == operator.ActionProjectionPause:
		return fmt.Sprintf("Paused projection %s %s, at event %d.", h.Projection, where, h.AppliedSeq)
	case h.Behind > 0 && h.BlockedByRun > 0:
		said += fmt.Sprintf("; the replay of %s waits for run %d to end", Count(h.Behind, "campaign", "campaigns"), h.BlockedByRun)
	case h.Behind > 0:
		said += fmt.Sprintf("; %s for a replay", Count(h.Behind, "campaign waits", "campaigns wait"))
	}
	if said += "."; h.Quarantined > 0 {
		said += fmt.Sprintf(" It is still quarantined in %s: replay it there once its file is fixed.", Count(h.Quarantined, "campaign", "campaigns"))
	}
	return said
}

// testOf returns the test delivery of an action, to a publisher or a receiver of alerts; nil for any other action.
func testOf(a operator.AuditEntry) *subscription.TestDelivery {
	var d subscription.TestDelivery
	if a.Action != operator.ActionPublisherTest && a.Action != operator.ActionAlertTest || a.Outcome == operator.AuditRefused || json.Unmarshal(a.After, &d) != nil {
		return nil
	}
	return &d
}

// wentWrong reports whether an action was done without the intended result.
func wentWrong(a operator.AuditEntry) bool {
	d := testOf(a)
	return d != nil && !d.OK
}

// flashLevel is how the action that led to a page turned out, so far.
func flashLevel(p Page) finding.Level {
	switch {
	case wentWrong(*p.Flash):
		return finding.Warn
	case p.After.Level == "":
		return finding.OK
	}
	return p.After.Level
}

var flashMarks = map[finding.Level]string{finding.OK: "✓", finding.Busy: "…", finding.Warn: "!"}

// AuthWords describe the methods of authentication.
var AuthWords = map[operator.Auth]string{
	operator.AuthLocal:       "none (local)",
	operator.AuthJWT:         "signed assertion",
	operator.AuthProxyHeader: "proxy header",
	operator.AuthToken:       "token",
	operator.AuthHost:        "embedding program",
	operator.AuthOS:          "system user",
	operator.AuthSystem:      "outboxweb itself",
}

// authFact is how an actor was authenticated, without the label that a choice has.
func authFact(a operator.Auth) string {
	if a == operator.AuthLocal {
		return "no authentication"
	}
	return cmp.Or(AuthWords[a], string(a))
}

// actorFacts describes how the actor was authenticated, the actor's role, and the action's channel.
// Records of older versions lack some of it.
func actorFacts(a *operator.AuditEntry) string {
	facts := []string{"via " + a.Via}
	if a.From != "" {
		facts[0] += " from " + a.From
	}
	if a.Auth != "" {
		facts = append(facts, authFact(a.Auth))
	}
	if a.Role != "" {
		facts = append(facts, "role "+string(a.Role))
	}
	return strings.Join(facts, " · ")
}

// TargetURL returns the page of an action's object other than a campaign; empty if the reader may
// not see it, or the text is truncated.
func (p Page) TargetURL(t operator.Target) URL {
	l := p.Links
	kind, name, _ := strings.Cut(string(t), " ")
	id, err := strconv.ParseInt(name, 10, 64)
	switch {
	case kind == "run" && err == nil:
		return l.RunOf(id)
	case kind == "operation" && err == nil:
		return l.Operation(id, operations.OperationRowFilter{})
	case kind == "token" && p.Me.Role.Includes(operator.RoleAdmin):
		return l.Tokens()
	case kind == "alert" || kind == "receiver":
		return l.Alerts()
	case kind == "source" && name != "":
		return l.Source(name, "", 0)
	case kind == "projection" && name != "":
		return l.Projection(name)
	case kind == "publisher":
		if sub, err := operator.ParseSubscriptionName(name); err == nil {
			return l.Publisher(sub)
		}
	}
	return ""
}

// spanWords says how long something lasts: a duration, or operator.UntilResumed.
func spanWords(span string) string {
	if d, err := time.ParseDuration(span); err == nil {
		return event.Limit(d)
	}
	return "until resumed (takes a reason)"
}
