package jobs

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// Limits, in bytes, on how much of a value in a comparison is shown at once, and how much can be
// expanded.
const (
	diffInline = 160
	diffOpened = 4 << 10
)

func diffStart(text string) string { return strings.ToValidUTF8(text[:diffInline], "") + "…" }

// UpTo returns a text, or its beginning and how much is missing; most is in bytes.
func UpTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("… and %s more bytes", ui.Num(int64(len(text)-most)))
}

// PlainJSON returns a document without encoding/json's escapes for HTML; it is escaped when it is
// rendered.
func PlainJSON(value []byte) string {
	if !bytes.Contains(value, []byte(`\u00`)) {
		return string(value)
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			b.WriteByte(value[i])
			continue
		}
		end := min(i+2, len(value))
		if i+6 <= len(value) {
			if plain, ok := htmlEscapes[string(value[i:i+6])]; ok {
				b.WriteByte(plain)
				i += 5
				continue
			}
		}
		b.Write(value[i:end])
		i = end - 1
	}
	return b.String()
}

var htmlEscapes = map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}

// RunResultTitle is the title of the browser tab.
func RunResultTitle(v RunResultView) string { return RunTitle(v.Run) + " of " + v.Result.CampaignID }

// resultSentence describes the result of a campaign.
func resultSentence(v RunResultView) string {
	switch {
	case v.Run.Kind == replay.RunRehearse:
		return v.Result.RehearsedText()
	case v.Result.Outcome == replay.OutcomeFailed:
		return "Failed."
	case v.Run.Kind == replay.RunReplay && v.Result.Outcome == replay.OutcomeMatch:
		return "Nothing to replay: no row was missing, and no projection was quarantined or behind. Paused ones are left out."
	case v.Result.Outcome == replay.OutcomeReplayed:
		return "Caught up, as far as events could be applied."
	case v.Run.Kind == replay.RunRebuild && v.Result.Outcome == replay.OutcomeDrift && len(v.Result.NotCompared()) > 0:
		return "Rebuilt. Some rows differed before. A paused projection lacks events."
	case v.Run.Kind == replay.RunRebuild && v.Result.Outcome == replay.OutcomeDrift:
		return "Rebuilt. Some rows differed before; all match the journal now, as far as events are applied."
	case v.Run.Kind == replay.RunRebuild && v.Result.Outcome == replay.OutcomeNotCompared:
		return "Rebuilt. No rows differed before. A paused projection lacks events."
	case v.Run.Kind == replay.RunRebuild:
		return "Rebuilt. No rows differed before."
	case v.Result.Outcome == replay.OutcomeDrift:
		return "Drift: the live rows differ from " + journalOf(v.Run) + "."
	case v.Result.Outcome == replay.OutcomeNotCompared:
		return "No differences, but not all events were compared."
	case v.Run.UntilSeq > 0:
		return fmt.Sprintf("Replayed up to event %d.", v.Result.Seq)
	}
	return "The live rows match " + journalOf(v.Run) + ", as far as events are applied."
}

func notComparedSentence(n campaign.NotCompared) string {
	text := fmt.Sprintf("Not compared: %s. The projection was %s at the time.", n.Events(), n.State)
	if n.State == campaign.CursorBehind {
		text += " Verify again after a replay has caught it up."
	}
	return text
}

// comparisonSentence says how many rows differ; the counts are in terms of what a rebuild changes,
// or changed, in the live rows.
func comparisonSentence(kind replay.RunKind, c projection.Comparison) string {
	switch {
	case !c.Differs() && kind == replay.RunRehearse:
		return "No rows would change."
	case !c.Differs():
		return "No differences."
	case kind == replay.RunRebuild:
		return "The rebuild changed rows: " + ChangeCounts(c, rebuildSides) + "."
	case kind == replay.RunRehearse:
		return "Rows would change: " + ChangeCounts(c, triedSides) + "."
	default:
		return ui.Sentence(ChangeCounts(c, VerifySides))
	}
}

func thereOrNot(there bool) string {
	if there {
		return "present"
	}
	return "absent"
}

func newRunTitle(kind replay.RunKind) string {
	if kind == "" {
		return "Start a run"
	}
	return "Start a " + string(kind) + " run"
}

// byLine splits ids into those that can be lines of a form, and the others.
func byLine(ids []string) (fit, odd []string) {
	for _, id := range ids {
		if strings.ContainsAny(id, "\r\n") || strings.TrimSpace(id) != id {
			odd = append(odd, id)
		} else {
			fit = append(fit, id)
		}
	}
	return fit, odd
}

// rowLinks leads to the rows that differ as they were at the first divergence or else at the end. Of a
// blocked campaign they are none: its rows are made of events that are not applied.
func (v RunResultView) rowLinks(p ui.Page, one replay.ProjectionResult) []ui.URL {
	if r := v.Result.Rehearsed; r != nil && r.Head > 0 {
		return nil
	}
	var links []ui.URL
	for i, name := range v.Rows[one.Projection] {
		link := ui.URL("")
		never := one.Comparison.FirstSeq == 0 && one.Comparison.Samples[i].Kind == projection.RowRemoved // the journal does not make it
		if name != "" && !never {
			link = p.Links.ReadModel(timetravel.ModelQuery{CampaignID: v.Result.CampaignID, Seq: cmp.Or(one.Comparison.FirstSeq, one.Seq), Row: name})
		}
		links = append(links, link)
	}
	return links
}
