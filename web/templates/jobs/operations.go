package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// OperationsView is a page of the operations.
type OperationsView = ui.ListView[outbox.OperationFilter, outbox.Operation]

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
	return fmt.Sprintf("Operation %d: requeue of %s", o.ID, ui.Count(o.Totals.Chosen, "row", "rows"))
}

func operationChoices(p ui.Page, f outbox.OperationFilter) []ui.Choice {
	open := false
	all := []ui.Choice{
		{Name: "all", To: p.Links.Operations(outbox.OperationFilter{}), Chosen: f.Status == "" && f.Acknowledged == nil},
		{Name: "not acknowledged", To: p.Links.Operations(outbox.OperationFilter{Acknowledged: &open}), Chosen: f.Acknowledged != nil && !*f.Acknowledged},
	}
	for _, s := range outbox.OperationStatuses {
		all = append(all, ui.Choice{Name: ui.OperationLook(s).Glyph + " " + string(s), To: p.Links.Operations(outbox.OperationFilter{Status: s}), Chosen: f.Status == s})
	}
	return all
}

// resultChoices are the filters of an operation's rows.
func resultChoices(p ui.Page, v OperationView) []ui.Choice {
	o := v.Operation
	all := []ui.Choice{{Name: "all " + ui.Num(o.Totals.Chosen), To: p.Links.Operation(o.ID, outbox.OperationRowFilter{}), Chosen: v.Filter.Status == ""}}
	for _, r := range outbox.RowResults {
		name := ui.ResultLook(r).Glyph + " " + resultName(r) + " " + ui.Num(o.Totals.Of(r))
		all = append(all, ui.Choice{Name: name, To: p.Links.Operation(o.ID, outbox.OperationRowFilter{Status: r}), Chosen: v.Filter.Status == r})
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
			parts = append(parts, ui.Num(n)+" "+resultName(r))
		}
	}
	return ui.Count(o.Totals.Chosen, "row", "rows") + ": " + strings.Join(parts, ", ")
}

// alsoRefused states how many named rows were not chosen, if any.
func alsoRefused(o outbox.Operation) string {
	if o.Refused == 0 {
		return ""
	}
	return "; " + ui.Num(o.Refused) + " not dead, or in another operation"
}

func waveName(o outbox.Operation, g outbox.OperationGroup) string {
	if g.Wave < 0 {
		return "–"
	}
	return fmt.Sprintf("%s, %s", waveOf(o, g.Wave), ui.Count(g.WaveSize, "row", "rows"))
}

func waveOf(o outbox.Operation, wave int64) string {
	if o.Canary && wave == 0 {
		return "canary"
	}
	return "wave " + ui.Itoa(wave)
}

// estimate says how long workers would take.
func estimate(p outbox.OperationPreview) string {
	if p.EventsPerSecond == nil {
		return "Duration unknown: too little was applied lately to estimate it."
	}
	return "Estimate: " + outbox.Estimate(p.Rows+p.Released, *p.EventsPerSecond) + ", the best rate of the last " + ui.Count(outbox.PaceMinutes, "busy minute", "busy minutes") + "."
}

// newFailuresCount is how many failures since the start of an operation are known.
func newFailuresCount(d outbox.OperationDetail) string {
	n := ui.Num(int64(len(d.NewFailures) + len(d.NewQuarantines)))
	if max(len(d.NewFailures), len(d.NewQuarantines)) >= outbox.NewFailuresNamed {
		n += "+"
	}
	return n
}

// tried continues a sentence about a rehearsal with how many of the rows it tried, and what became of
// them.
func tried(rows, passing, failing int64) string {
	would := ui.Verb(passing+failing, "it", "they") + " would pass"
	if failing > 0 {
		would = ui.Verb(failing, "it", "they") + " would fail, or an event behind"
	}
	if passing > 0 && failing > 0 {
		would = fmt.Sprintf("%s would pass, %s would fail, or an event behind", ui.Num(passing), ui.Num(failing))
	}
	switch left := rows - passing - failing; {
	case left == 0:
		return "tried " + ui.Verb(rows, "this row", "each of these rows") + " with the loaded files: " + would + "."
	case left == rows:
		return "tried none of these rows: rehearse again."
	default:
		return fmt.Sprintf("tried %s of these %s with the loaded files: %s. It did not try the other %s: rehearse again.",
			ui.Num(rows-left), ui.Count(rows, "row", "rows"), would, ui.Num(left))
	}
}

// filterTexts are the parts of a filter that are set.
func filterTexts(f outbox.RequeueFilter) []ui.NamedText {
	all := []ui.NamedText{{Name: "campaign", Value: f.CampaignID}, {Name: "event type", Value: f.EventType}, {Name: "fingerprint", Value: f.Fingerprint}, {Name: "at most", Value: ui.Positive(int64(f.Limit))}}
	return slices.DeleteFunc(all, func(t ui.NamedText) bool { return t.Value == "" })
}

func deadRows(f outbox.RequeueFilter) outbox.RowFilter {
	return outbox.RowFilter{Status: outbox.Dead, CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
}

// selectionFields are the hidden fields of the form that starts an operation: the selection and the
// preview.
func selectionFields(v NewOperationView) []ui.NamedText {
	fields := []ui.NamedText{
		{Name: "idempotency_key", Value: v.Key},
		{Name: "expected_rows", Value: ui.Itoa(v.Preview.Rows)}, {Name: "expected_released", Value: ui.Itoa(v.Preview.Released)},
	}
	if v.Rehearsal > 0 {
		fields = append(fields, ui.NamedText{Name: "rehearsal", Value: ui.Itoa(v.Rehearsal)})
	}
	selected := ui.SelectionValues(v.Selection)
	for _, name := range slices.Sorted(maps.Keys(selected)) {
		for _, value := range selected[name] {
			fields = append(fields, ui.NamedText{Name: name, Value: value})
		}
	}
	return fields
}

// startTwins are the shell equivalents. The command cannot name rows one by one.
func startTwins(p ui.Page, v NewOperationView) ui.Twins {
	asked := outbox.OperationStartRequest{Kind: "requeue", Rows: v.Selection.Rows, OperationOptions: outbox.OperationOptions{Canary: true, Rehearsal: v.Rehearsal,
		ReasonRequest: ui.AnyReason, Confirm: v.Preview.Confirm, ExpectedRows: &v.Preview.Rows, ExpectedReleased: &v.Preview.Released}}
	if len(asked.Rows) == 0 {
		f := v.Selection.Filter
		asked.Filter = &outbox.DeadRows{CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
		if f.Limit > 0 {
			asked.Filter.Limit = &f.Limit
		}
	}
	t := ui.Twins{Curl: p.CurlPost(p.Links.API().Action(outbox.ActionOperationStart), asked)}
	if len(asked.Rows) == 0 {
		t.CLI = p.Command("requeue --dead", asked)
	}
	return t
}

// operationTwins are the shell equivalents of cancelling or acknowledging the operation, whichever
// is possible, or of showing it.
func operationTwins(p ui.Page, o outbox.Operation) ui.Twins {
	id, act := ui.Itoa(o.ID), o.Action()
	if act == "" || !p.Offers(act) {
		return ui.Twins{Curl: p.CurlGet(p.Links.API().Operation(o.ID, outbox.OperationRowFilter{})), CLI: p.Program() + "operations show " + id}
	}
	return p.Asks(act, outbox.OperationActionRequest{ReasonRequest: ui.AnyReason, Expected: &outbox.ExpectedOperation{Status: o.Status}}, id)
}
