package templates

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// OperationsView is a page of the operations.
type OperationsView = ListView[outbox.OperationFilter, outbox.Operation]

// OperationView is an operation with one page of its rows.
type OperationView struct {
	Operation outbox.OperationDetail
	Filter    outbox.OperationRowFilter `redact:"-"`
	Rows      outbox.Page[outbox.OperationRow]
	Rehearsal outbox.FixRehearsal // that the operation rests on; zero without one
	Acts      []outbox.AuditEntry // the latest actions on it
	// Without are the projections that are paused, quarantined or not loaded in some campaign.
	Without []outbox.HeldProjection
}

// without names the projections that applied events may lack.
func (v OperationView) without() string {
	names := make([]string, len(v.Without))
	for i, h := range v.Without {
		names[i] = h.Projection
	}
	return strings.Join(names, ", ")
}

// NewOperationView is an operation before it is started.
type NewOperationView struct {
	Selection outbox.Selection        `redact:"-"`
	Rehearsal int64                   // that it rests on; 0 without one
	Rehearsed *outbox.FixRehearsal    // another one, with the loaded files, that tried rows of the cause; nil without one
	Resting   outbox.OperationPreview // of the same selection, resting on Rehearsed
	Preview   outbox.OperationPreview
	Key       string `redact:"-"` // the idempotency key of the form: sent twice, it starts once
}

// OperationTitle is an operation's title.
func OperationTitle(o outbox.Operation) string {
	return fmt.Sprintf("Operation %d: requeue of %s", o.ID, count(o.Totals.Chosen, "row", "rows"))
}

func operationChoices(p Page, f outbox.OperationFilter) []choice {
	open := false
	all := []choice{
		{"all", p.Links.Operations(outbox.OperationFilter{}), f.Status == "" && f.Acknowledged == nil},
		{"not acknowledged", p.Links.Operations(outbox.OperationFilter{Acknowledged: &open}), f.Acknowledged != nil && !*f.Acknowledged},
	}
	for _, s := range outbox.OperationStatuses {
		all = append(all, choice{operationLook(s).glyph + " " + string(s), p.Links.Operations(outbox.OperationFilter{Status: s}), f.Status == s})
	}
	return all
}

// resultChoices are the filters of an operation's rows.
func resultChoices(p Page, v OperationView) []choice {
	o := v.Operation
	all := []choice{{"all " + num(o.Totals.Chosen), p.Links.Operation(o.ID, outbox.OperationRowFilter{}), v.Filter.Status == ""}}
	for _, r := range outbox.RowResults {
		name := resultLook(r).glyph + " " + resultName(r) + " " + num(o.Totals.Of(r))
		all = append(all, choice{name, p.Links.Operation(o.ID, outbox.OperationRowFilter{Status: r}), v.Filter.Status == r})
	}
	return all
}

func resultName(r outbox.RowResult) string {
	switch r {
	case outbox.ResultQuarantined:
		return "applied, quarantined"
	case outbox.ResultLeft:
		return "not attempted"
	case outbox.ResultUnwatched:
		return "not watched"
	}
	return strings.ReplaceAll(string(r), "_", " ")
}

// progressPart is a part of the bar, in thousandths of its width.
type progressPart struct {
	result      outbox.RowResult
	from, width int64
}

// progressOrder is the order of the bar from left to right: completed first, waiting last.
var progressOrder = []outbox.RowResult{outbox.ResultDone, outbox.ResultSkipped, outbox.ResultUnwatched, outbox.ResultQuarantined, outbox.ResultFailedAgain,
	outbox.ResultLeft, outbox.ResultRequeued, outbox.ResultWaiting}

// progressParts divides the bar. Every nonzero part has a visible width.
func progressParts(o outbox.Operation) []progressPart {
	const width, least = 1000, 8
	var parts []progressPart
	var sum int64
	for _, r := range progressOrder {
		if n := o.Totals.Of(r); n > 0 {
			p := progressPart{result: r, width: max(least, n*width/max(o.Totals.Chosen, 1))}
			sum += p.width
			parts = append(parts, p)
		}
	}
	var from int64
	for i := range parts {
		end := from + parts[i].width*width/sum
		if i == len(parts)-1 {
			end = width
		}
		parts[i].from, parts[i].width = from, end-from
		from = end
	}
	return parts
}

// progressText describes the bar.
func progressText(o outbox.Operation) string {
	var parts []string
	for _, r := range progressOrder {
		if n := o.Totals.Of(r); n > 0 {
			parts = append(parts, num(n)+" "+resultName(r))
		}
	}
	return count(o.Totals.Chosen, "row", "rows") + ": " + strings.Join(parts, ", ")
}

// alsoRefused states how many named rows were not chosen, if any.
func alsoRefused(o outbox.Operation) string {
	if o.Refused == 0 {
		return ""
	}
	return "; " + num(o.Refused) + " not dead, or in another operation"
}

func waveName(o outbox.Operation, g outbox.OperationGroup) string {
	if g.Wave < 0 {
		return "–"
	}
	return fmt.Sprintf("%s, %s", waveOf(o, g.Wave), count(g.WaveSize, "row", "rows"))
}

func waveOf(o outbox.Operation, wave int64) string {
	if o.Canary && wave == 0 {
		return "canary"
	}
	return "wave " + itoa(wave)
}

// verb returns the form of the verb for n things.
func verb(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// estimate says how long workers would take.
func estimate(p outbox.OperationPreview) string {
	if p.EventsPerSecond == nil {
		return "Duration unknown: too little was applied lately to estimate it."
	}
	return "Estimate: " + outbox.Estimate(p.Rows+p.Released, *p.EventsPerSecond) + ", the best rate of the last " + count(outbox.PaceMinutes, "busy minute", "busy minutes") + "."
}

// newFailuresCount is how many failures since the start of an operation are known.
func newFailuresCount(d outbox.OperationDetail) string {
	n := num(int64(len(d.NewFailures) + len(d.NewQuarantines)))
	if max(len(d.NewFailures), len(d.NewQuarantines)) >= outbox.NewFailuresNamed {
		n += "+"
	}
	return n
}

// tried continues a sentence about a rehearsal with how many of the rows it tried, and what became of
// them.
func tried(rows, passing, failing int64) string {
	would := verb(passing+failing, "it", "they") + " would pass"
	if failing > 0 {
		would = verb(failing, "it", "they") + " would fail, or an event behind"
	}
	if passing > 0 && failing > 0 {
		would = fmt.Sprintf("%s would pass, %s would fail, or an event behind", num(passing), num(failing))
	}
	switch left := rows - passing - failing; {
	case left == 0:
		return "tried " + verb(rows, "this row", "each of these rows") + " with the loaded files: " + would + "."
	case left == rows:
		return "tried none of these rows: rehearse again."
	default:
		return fmt.Sprintf("tried %s of these %s with the loaded files: %s. It did not try the other %s: rehearse again.",
			num(rows-left), count(rows, "row", "rows"), would, num(left))
	}
}

// filterTexts are the parts of a filter that are set.
func filterTexts(f outbox.RequeueFilter) []namedText {
	all := []namedText{{"campaign", f.CampaignID}, {"event type", f.EventType}, {"fingerprint", f.Fingerprint}, {"at most", positive(int64(f.Limit))}}
	return slices.DeleteFunc(all, func(t namedText) bool { return t.Value == "" })
}

func deadRows(f outbox.RequeueFilter) outbox.RowFilter {
	return outbox.RowFilter{Status: outbox.Dead, CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
}

// selectionFields are the hidden fields of the form that starts an operation: the selection and the
// preview.
func selectionFields(v NewOperationView) []namedText {
	fields := []namedText{
		{"idempotency_key", v.Key},
		{"expected_rows", itoa(v.Preview.Rows)}, {"expected_released", itoa(v.Preview.Released)},
	}
	if v.Rehearsal > 0 {
		fields = append(fields, namedText{"rehearsal", itoa(v.Rehearsal)})
	}
	selected := selectionValues(v.Selection)
	for _, name := range slices.Sorted(maps.Keys(selected)) {
		for _, value := range selected[name] {
			fields = append(fields, namedText{name, value})
		}
	}
	return fields
}

// startTwins are the shell equivalents. The command cannot name rows one by one.
func startTwins(p Page, v NewOperationView) Twins {
	asked := outbox.OperationStartRequest{Kind: "requeue", Rows: v.Selection.Rows, OperationOptions: outbox.OperationOptions{Canary: true, Rehearsal: v.Rehearsal,
		ReasonRequest: anyReason, Confirm: v.Preview.Confirm, ExpectedRows: &v.Preview.Rows, ExpectedReleased: &v.Preview.Released}}
	if len(asked.Rows) == 0 {
		f := v.Selection.Filter
		asked.Filter = &outbox.DeadRows{CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
		if f.Limit > 0 {
			asked.Filter.Limit = &f.Limit
		}
	}
	t := Twins{Curl: p.curlPost(p.Links.API().Action(outbox.ActionOperationStart), asked)}
	if len(asked.Rows) == 0 {
		t.CLI = p.command("requeue --dead", asked)
	}
	return t
}

// operationTwins are the shell equivalents of cancelling or acknowledging the operation, whichever
// is possible, or of showing it.
func operationTwins(p Page, o outbox.Operation) Twins {
	id, act := itoa(o.ID), o.Action()
	if act == "" || !p.Offers(act) {
		return Twins{Curl: p.curlGet(p.Links.API().Operation(o.ID, outbox.OperationRowFilter{})), CLI: p.program() + "operations show " + id}
	}
	return p.asks(act, outbox.OperationActionRequest{ReasonRequest: anyReason, Expected: &outbox.ExpectedOperation{Status: o.Status}}, id)
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
			count(d.Rows, "dead row", "dead rows"), count(d.Heads, "head", "heads"), count(d.Released, "row", "rows"))
	case outbox.ActionOperationCancel:
		return fmt.Sprintf("Cancelled operation %d: %s not attempted, %s in progress.", d.OperationID,
			count(d.Totals.Left, "row", "rows"), num(d.Totals.Unwatched))
	default:
		return fmt.Sprintf("Acknowledged operation %d.", d.OperationID)
	}
}
