package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// OperationsView is a page of the operations.
type OperationsView = ui.ListView[operations.OperationFilter, operations.Operation]

// OperationView is an operation with one page of its rows.
type OperationView struct {
	Operation operations.OperationDetail
	Filter    operations.OperationRowFilter `redact:"-"`
	Rows      event.Page[operations.OperationRow]
	Rehearsal replay.FixRehearsal   // that the operation rests on; zero without one
	Acts      []operator.AuditEntry // the latest actions on it
	// Without are the projections that are paused, quarantined or not loaded in some campaign.
	Without []campaign.HeldProjection
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
	Selection operations.Selection        `redact:"-"`
	Rehearsal int64                       // that it rests on; 0 without one
	Rehearsed *replay.FixRehearsal        // another one, with the loaded files, that tried rows of the cause; nil without one
	Resting   operations.OperationPreview // of the same selection, resting on Rehearsed
	Preview   operations.OperationPreview
	Key       string `redact:"-"` // the idempotency key of the form: sent twice, it starts once
}

// OperationTitle is an operation's title.
func OperationTitle(o operations.Operation) string {
	return fmt.Sprintf("Operation %d: requeue of %s", o.ID, ui.Count(o.Totals.Chosen, "row", "rows"))
}

func operationChoices(p ui.Page, f operations.OperationFilter) []ui.Choice {
	open := false
	all := []ui.Choice{
		{Name: "all", To: p.Links.Operations(operations.OperationFilter{}), Chosen: f.Status == "" && f.Acknowledged == nil},
		{Name: "not acknowledged", To: p.Links.Operations(operations.OperationFilter{Acknowledged: &open}), Chosen: f.Acknowledged != nil && !*f.Acknowledged},
	}
	for _, s := range operations.OperationStatuses {
		all = append(all, ui.Choice{Name: ui.OperationLook(s).Glyph + " " + string(s), To: p.Links.Operations(operations.OperationFilter{Status: s}), Chosen: f.Status == s})
	}
	return all
}

// resultChoices are the filters of an operation's rows.
func resultChoices(p ui.Page, v OperationView) []ui.Choice {
	o := v.Operation
	all := []ui.Choice{{Name: "all " + ui.Num(o.Totals.Chosen), To: p.Links.Operation(o.ID, operations.OperationRowFilter{}), Chosen: v.Filter.Status == ""}}
	for _, r := range operations.RowResults {
		name := ui.ResultLook(r).Glyph + " " + resultName(r) + " " + ui.Num(o.Totals.Of(r))
		all = append(all, ui.Choice{Name: name, To: p.Links.Operation(o.ID, operations.OperationRowFilter{Status: r}), Chosen: v.Filter.Status == r})
	}
	return all
}

func resultName(r operations.RowResult) string {
	switch r {
	case operations.ResultQuarantined:
		return "applied, quarantined"
	case operations.ResultLeft:
		return "not attempted"
	case operations.ResultUnwatched:
		return "not watched"
	}
	return strings.ReplaceAll(string(r), "_", " ")
}

// progressPart is a part of the bar, in thousandths of its width.
type progressPart struct {
	result      operations.RowResult
	from, width int64
}

// progressOrder is the order of the bar from left to right: completed first, waiting last.
var progressOrder = []operations.RowResult{operations.ResultDone, operations.ResultSkipped, operations.ResultUnwatched, operations.ResultQuarantined, operations.ResultFailedAgain,
	operations.ResultLeft, operations.ResultRequeued, operations.ResultWaiting}

// progressParts divides the bar. Every nonzero part has a visible width.
func progressParts(o operations.Operation) []progressPart {
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
func progressText(o operations.Operation) string {
	var parts []string
	for _, r := range progressOrder {
		if n := o.Totals.Of(r); n > 0 {
			parts = append(parts, ui.Num(n)+" "+resultName(r))
		}
	}
	return ui.Count(o.Totals.Chosen, "row", "rows") + ": " + strings.Join(parts, ", ")
}

// alsoRefused states how many named rows were not chosen, if any.
func alsoRefused(o operations.Operation) string {
	if o.Refused == 0 {
		return ""
	}
	return "; " + ui.Num(o.Refused) + " not dead, or in another operation"
}

func waveName(o operations.Operation, g operations.OperationGroup) string {
	if g.Wave < 0 {
		return "–"
	}
	return fmt.Sprintf("%s, %s", waveOf(o, g.Wave), ui.Count(g.WaveSize, "row", "rows"))
}

func waveOf(o operations.Operation, wave int64) string {
	if o.Canary && wave == 0 {
		return "canary"
	}
	return "wave " + ui.Itoa(wave)
}

// estimate says how long workers would take.
func estimate(p operations.OperationPreview) string {
	if p.EventsPerSecond == nil {
		return "Duration unknown: too little was applied lately to estimate it."
	}
	return "Estimate: " + campaign.Estimate(p.Rows+p.Released, *p.EventsPerSecond) + ", the best rate of the last " + ui.Count(campaign.PaceMinutes, "busy minute", "busy minutes") + "."
}

// newFailuresCount is how many failures since the start of an operation are known.
func newFailuresCount(d operations.OperationDetail) string {
	n := ui.Num(int64(len(d.NewFailures) + len(d.NewQuarantines)))
	if max(len(d.NewFailures), len(d.NewQuarantines)) >= operations.NewFailuresNamed {
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
func filterTexts(f campaign.RequeueFilter) []ui.NamedText {
	all := []ui.NamedText{{Name: "campaign", Value: f.CampaignID}, {Name: "event type", Value: f.EventType}, {Name: "fingerprint", Value: f.Fingerprint}, {Name: "at most", Value: ui.Positive(int64(f.Limit))}}
	return slices.DeleteFunc(all, func(t ui.NamedText) bool { return t.Value == "" })
}

func deadRows(f campaign.RequeueFilter) campaign.RowFilter {
	return campaign.RowFilter{Status: event.Dead, CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
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
	asked := operations.OperationStartRequest{Kind: "requeue", Rows: v.Selection.Rows, OperationOptions: operations.OperationOptions{Canary: true, Rehearsal: v.Rehearsal,
		ReasonRequest: ui.AnyReason, Confirm: v.Preview.Confirm, ExpectedRows: &v.Preview.Rows, ExpectedReleased: &v.Preview.Released}}
	if len(asked.Rows) == 0 {
		f := v.Selection.Filter
		asked.Filter = &campaign.DeadRows{CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
		if f.Limit > 0 {
			asked.Filter.Limit = &f.Limit
		}
	}
	t := ui.Twins{Curl: p.CurlPost(p.Links.API().Action(operator.ActionOperationStart), asked)}
	if len(asked.Rows) == 0 {
		t.CLI = p.Command("requeue --dead", asked)
	}
	return t
}

// operationTwins are the shell equivalents of cancelling or acknowledging the operation, whichever
// is possible, or of showing it.
func operationTwins(p ui.Page, o operations.Operation) ui.Twins {
	id, act := ui.Itoa(o.ID), o.Action()
	if act == "" || !p.Offers(act) {
		return ui.Twins{Curl: p.CurlGet(p.Links.API().Operation(o.ID, operations.OperationRowFilter{})), CLI: p.Program() + "operations show " + id}
	}
	return p.Asks(act, operations.OperationActionRequest{ReasonRequest: ui.AnyReason, Expected: &operations.ExpectedOperation{Status: o.Status}}, id)
}
