package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// ActionSentence describes an action from its audit record.
func ActionSentence(a outbox.AuditEntry) string {
	subject := fmt.Sprintf("event %d of campaign %s", a.Seq, a.CampaignID)
	switch a.Action {
	case outbox.ActionRequeue:
		return "Requeued " + subject + ": pending again, with zero attempts, due now."
	case outbox.ActionRetry:
		return "Retried " + subject + ": due now."
	case outbox.ActionDeadLetter:
		return "Dead-lettered " + subject + ": not retried until it is requeued."
	case outbox.ActionRequeueMany:
		var d outbox.Requeued
		if json.Unmarshal(a.After, &d) == nil {
			return fmt.Sprintf("Requeued %s: %s, and %s behind them released.", Count(d.Requeued, "dead row", "dead rows"),
				Count(d.Heads, "head", "heads"), Count(d.Released, "row", "rows"))
		}
		return "Requeued dead rows."
	case outbox.ActionSkip:
		return "Skipped " + subject + ": no projection will apply it, and the rows behind it continue."
	case outbox.ActionUnskip:
		return "Un-skipped " + subject + ": it will be applied like any other event."
	case outbox.ActionOperationStart, outbox.ActionOperationCancel, outbox.ActionOperationAcknowledge:
		return operationSentence(a)
	case outbox.ActionProjectionPause, outbox.ActionProjectionResume:
		return pauseSentence(a)
	case outbox.ActionRunStart, outbox.ActionRunCancel, outbox.ActionRunResume:
		return runActionSentence(a)
	case outbox.ActionRehearse:
		return rehearseSentence(a)
	case outbox.ActionPublisherPauseAll, outbox.ActionPublisherResumeAll:
		return publishersActionSentence(a)
	case outbox.ActionPublisherPause, outbox.ActionPublisherResume, outbox.ActionPublisherReset, outbox.ActionPublisherSeek, outbox.ActionPublisherSkip, outbox.ActionPublisherTest:
		return publisherActionSentence(a)
	case outbox.ActionRetryMany:
		var d outbox.Retried
		if json.Unmarshal(a.After, &d) == nil {
			return fmt.Sprintf("Retried %s: due now.", Count(d.Retried, "failed row", "failed rows"))
		}
		return "Retried failed rows: due now."
	case outbox.ActionNoteErrors:
		return "Note saved."
	case outbox.ActionReveal:
		return "Revealed redacted values of " + subject + "."
	case outbox.ActionReplay, outbox.ActionRepairGaps:
		return repairSentence(a)
	case outbox.ActionAlertTest, outbox.ActionAlertMute, outbox.ActionAlertUnmute:
		return alertActionSentence(a)
	case outbox.ActionIntakeRetry, outbox.ActionIntakeDiscard, outbox.ActionIntakeHandOver:
		return intakeActionSentence(a)
	case outbox.ActionTokenCreate, outbox.ActionTokenRevoke:
		return tokenSentence(a)
	case outbox.ActionPause:
		return "Paused campaign " + a.CampaignID + "."
	case outbox.ActionResume:
		return "Resumed campaign " + a.CampaignID + "."
	case outbox.ActionJournalWentBack:
		var w outbox.WentBack
		if json.Unmarshal(a.After, &w) == nil {
			return w.Says()
		}
	}
	return "Done: " + string(a.Action) + "."
}

func repairSentence(a outbox.AuditEntry) string {
	what := "Repaired gaps"
	if a.Action == outbox.ActionReplay {
		what = "Replayed campaign " + a.CampaignID
	}
	var d outbox.Repaired
	if json.Unmarshal(a.After, &d) != nil {
		return what + "."
	}
	if d.Inserted == 0 && d.Removed == 0 {
		return what + ": nothing was missing."
	}
	return fmt.Sprintf("%s: %s enqueued, %s of applied events removed.", what,
		Count(d.Inserted, "event", "events"), Count(d.Removed, "row", "rows"))
}

func alertActionSentence(a outbox.AuditEntry) string {
	var d struct {
		Rule     string    `json:"rule"`
		Receiver string    `json:"receiver"`
		Until    time.Time `json:"until"`
		outbox.TestDelivery
	}
	_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	what := "rule " + d.Rule
	if d.Rule == outbox.AllAlerts {
		what = "all alert rules"
	}
	switch {
	case a.Action == outbox.ActionAlertMute:
		return "Muted " + what + " until " + StampTime(d.Until) + "."
	case a.Action == outbox.ActionAlertUnmute:
		return "Unmuted " + what + "."
	case d.OK:
		return "Sent a test message to receiver " + d.Receiver + ": taken in " + tookText(d.Seconds) + "."
	}
	return "Sent a test message to receiver " + d.Receiver + ": " + Visible(FirstLine(d.Error))
}

func StampTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// tokenSentence describes an action on a token.
func tokenSentence(a outbox.AuditEntry) string {
	var d struct {
		ID   int64       `json:"token_id"`
		Role outbox.Role `json:"role"`
		Note string      `json:"note"`
	}
	if json.Unmarshal(a.After, &d) != nil || d.ID == 0 {
		return "Done: " + string(a.Action) + "."
	}
	what := "token " + Itoa(d.ID) + ", with the role " + string(d.Role)
	if d.Note != "" {
		what += " (" + d.Note + ")"
	}
	if a.Action == outbox.ActionTokenRevoke {
		return "Revoked " + what + "."
	}
	return "Created " + what + "."
}

// tokenNote is the note of an action's token, from its audit record.
func tokenNote(a outbox.AuditEntry) string {
	var d struct {
		Note string `json:"note"`
	}
	if a.Action == outbox.ActionTokenCreate || a.Action == outbox.ActionTokenRevoke {
		_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	}
	return d.Note
}

// intakeActionSentence describes an action on a source or a rejected row.
func intakeActionSentence(a outbox.AuditEntry) string {
	var d struct {
		Source string `json:"source"`
		ID     int64  `json:"rejection"`
		From   string `json:"from"`
	}
	_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	if a.Action == outbox.ActionIntakeHandOver {
		return "Source " + d.Source + " is taken from journal " + d.From + " at the next read."
	}
	if a.Action == outbox.ActionIntakeRetry {
		return "Rejected row " + Itoa(d.ID) + " of source " + d.Source + " is retried at the next read."
	}
	return "Rejected row " + Itoa(d.ID) + " of source " + d.Source + " is deleted at the next read."
}

// operationSentence describes an action on an operation from its audit record.
func operationSentence(a outbox.AuditEntry) string {
	var d struct {
		OperationID int64                  `json:"operation_id"`
		Rows        int64                  `json:"rows"`
		Heads       int64                  `json:"heads"`
		Released    int64                  `json:"released"`
		Totals      outbox.OperationTotals `json:"totals"`
	}
	if json.Unmarshal(a.After, &d) != nil {
		return "Done: " + string(a.Action) + "."
	}
	switch a.Action {
	case outbox.ActionOperationStart:
		return fmt.Sprintf("Started operation %d: requeue of %s, %s; %s waiting behind them.", d.OperationID,
			Count(d.Rows, "dead row", "dead rows"), Count(d.Heads, "head", "heads"), Count(d.Released, "row", "rows"))
	case outbox.ActionOperationCancel:
		return fmt.Sprintf("Cancelled operation %d: %s not attempted, %s in progress.", d.OperationID,
			Count(d.Totals.Left, "row", "rows"), Num(d.Totals.Unwatched))
	default:
		return fmt.Sprintf("Acknowledged operation %d.", d.OperationID)
	}
}

// rehearseSentence describes the start of a rehearsal from its audit record.
func rehearseSentence(a outbox.AuditEntry) string {
	var after struct {
		RunID int64  `json:"run_id"`
		Scope string `json:"scope"`
	}
	_ = json.Unmarshal(a.After, &after)
	return fmt.Sprintf("Started run %d: rehearse %s.", after.RunID, after.Scope)
}

// runActionSentence describes an action on a run from its audit record.
func runActionSentence(a outbox.AuditEntry) string {
	var after struct {
		RunID  int64            `json:"run_id"`
		Scope  string           `json:"scope"`
		Status outbox.RunStatus `json:"status"`
	}
	_ = json.Unmarshal(a.After, &after)
	run := "run " + Itoa(after.RunID)
	switch {
	case a.Action == outbox.ActionRunStart:
		var before struct {
			Kind string `json:"kind"`
		}
		_ = json.Unmarshal(a.Before, &before)
		return fmt.Sprintf("Started %s: %s of %s.", run, before.Kind, after.Scope)
	case a.Action == outbox.ActionRunCancel && after.Status == outbox.RunCancelling:
		return fmt.Sprintf("Cancelled %s; its worker is stopping.", run)
	case a.Action == outbox.ActionRunCancel:
		return fmt.Sprintf("Cancelled %s.", run)
	default:
		return fmt.Sprintf("Resumed %s where it stopped.", run)
	}
}

// pauseSentence describes the outcome of pausing or resuming a projection.
func pauseSentence(a outbox.AuditEntry) string {
	var h outbox.ProjectionPause
	if json.Unmarshal(a.After, &h) != nil {
		return "Done: " + string(a.Action) + "."
	}
	where := "for all campaigns"
	if h.CampaignID != "" {
		where = "for campaign " + h.CampaignID
	}
	said := fmt.Sprintf("Resumed projection %s %s", h.Projection, where)
	switch {
	case a.Action == outbox.ActionProjectionPause && h.CampaignID == "":
		return fmt.Sprintf("Paused projection %s %s.", h.Projection, where)
	case a.Action == outbox.ActionProjectionPause:
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
func testOf(a outbox.AuditEntry) *outbox.TestDelivery {
	var d outbox.TestDelivery
	if a.Action != outbox.ActionPublisherTest && a.Action != outbox.ActionAlertTest || a.Outcome == outbox.AuditRefused || json.Unmarshal(a.After, &d) != nil {
		return nil
	}
	return &d
}

// wentWrong reports whether an action was done without the intended result.
func wentWrong(a outbox.AuditEntry) bool {
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
var AuthWords = map[outbox.Auth]string{
	outbox.AuthLocal:       "none (local)",
	outbox.AuthJWT:         "signed assertion",
	outbox.AuthProxyHeader: "proxy header",
	outbox.AuthToken:       "token",
	outbox.AuthHost:        "embedding program",
	outbox.AuthOS:          "system user",
	outbox.AuthSystem:      "outboxweb itself",
}

// authFact is how an actor was authenticated, without the label that a choice has.
func authFact(a outbox.Auth) string {
	if a == outbox.AuthLocal {
		return "no authentication"
	}
	return cmp.Or(AuthWords[a], string(a))
}

// actorFacts describes how the actor was authenticated, the actor's role, and the action's channel.
// Records of older versions lack some of it.
func actorFacts(a *outbox.AuditEntry) string {
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
func (p Page) TargetURL(t outbox.Target) URL {
	l := p.Links
	kind, name, _ := strings.Cut(string(t), " ")
	id, err := strconv.ParseInt(name, 10, 64)
	switch {
	case kind == "run" && err == nil:
		return l.RunOf(id)
	case kind == "operation" && err == nil:
		return l.Operation(id, outbox.OperationRowFilter{})
	case kind == "token" && p.Me.Role.Includes(outbox.RoleAdmin):
		return l.Tokens()
	case kind == "alert" || kind == "receiver":
		return l.Alerts()
	case kind == "source" && name != "":
		return l.Source(name, "", 0)
	case kind == "projection" && name != "":
		return l.Projection(name)
	case kind == "publisher":
		if sub, err := outbox.ParseSubscriptionName(name); err == nil {
			return l.Publisher(sub)
		}
	}
	return ""
}
