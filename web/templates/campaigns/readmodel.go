package campaigns

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// ReadModelTarget is the id of the part of a read model's page that follows the slider.
const ReadModelTarget = "as-of"

// How many rows of each table the page shows, and of one table alone.
const (
	ModelRowsEach = 8
	ModelRowsOne  = 25
)

// Limits, in bytes, of a value in a table, and on the page of its own.
const (
	modelInline = 60
	modelWhole  = 1 << 20
)

// ReadModelView is a read model as of an event.
type ReadModelView struct {
	timetravel.ReadModel
	Query     timetravel.ModelQuery `redact:"-"` // as the reader asked
	Campaign  campaign.Campaign
	Held      []campaign.Cursor     // of projections that are not live in the campaign
	Event     *campaign.EventLine   // the event at Seq; nil when there is none
	Replaying *timetravel.Replaying // how far the replay is, when the rows are not there yet
	Why       string                // why the rows cannot be replayed; empty when they can
}

// Unread reports whether there are no rows yet.
func (v ReadModelView) Unread() bool { return v.Tables == nil }

// CutModel limits live rows to those that the page shows.
func CutModel(m *timetravel.ReadModel) {
	for i := range m.Tables {
		if t := &m.Tables[i]; len(t.Rows) > ModelRowsOne {
			t.Rows, t.More = t.Rows[:ModelRowsOne], true
		}
	}
}

// at is the same selection as of another event. A page of a table begins anew, since its rows may be
// others.
func (v ReadModelView) at(seq int64) timetravel.ModelQuery {
	q := v.Query
	q.Seq, q.After = seq, ""
	return q
}

// first is the first event that the slider reaches.
func (v ReadModelView) first() int64 { return max(1, v.FirstSeq) }

// kept says which events the rows are kept for; empty when it is all.
func (v ReadModelView) kept() string {
	if v.FirstSeq == 0 {
		return ""
	}
	return fmt.Sprintf("Rows are kept for the last %s, from event %s on.", ui.Count(v.LastSeq-v.FirstSeq, "event", "events"), ui.Num(v.FirstSeq))
}

// notApplied begins the sentence about the events that have no rows yet.
func (v ReadModelView) notApplied() string {
	from, to := v.LastSeq+1, v.Campaign.HighWaterSeq
	if from == to {
		return "Event " + ui.Num(to) + " waits"
	}
	return "Events " + ui.Num(from) + " to " + ui.Num(to) + " wait"
}

// stands says what the campaign's head is, and what waits behind it.
func (v ReadModelView) stands() string {
	c, behind := v.Campaign, ""
	if n := c.HighWaterSeq - c.HeadSeq; n > 0 {
		behind = ", and " + ui.Count(n, "event waits", "events wait") + " behind it"
	}
	return "is " + string(c.HeadStatus) + behind + "."
}

// changeSentence says how many rows the event changed.
func (v ReadModelView) changeSentence() string {
	tables, more := v.Changes, false
	if v.Query.Table != "" || v.Query.Row != "" {
		tables = v.Tables
	}
	n := 0
	for _, t := range tables {
		n += t.Changed()
		more = more || t.More && len(v.Changes) > 0
	}
	switch {
	case n == 0 && slices.ContainsFunc(v.failed(), func(s timetravel.ModelStanding) bool { return s.FailedSeq <= v.Seq }):
		return "what it changed is not known"
	case n == 0 && (v.Query.Table != "" || v.Query.Row != ""):
		return "changes no row shown here"
	case n == 0:
		return "changes no row"
	case more:
		return "changes more than " + ui.Count(int64(n), "row", "rows")
	}
	return "changes " + ui.Count(int64(n), "row", "rows")
}

// drifted is the projections whose live rows differ.
func (v ReadModelView) drifted() []timetravel.ModelStanding {
	return slices.DeleteFunc(slices.Clone(v.Standings), func(s timetravel.ModelStanding) bool {
		return s.Verdict != string(campaign.VerdictDrift) || s.FailedSeq > 0
	})
}

// lacking is the cursor of a projection that lacks events in the campaign; none if it is live.
func (v ReadModelView) lacking(projection string) []campaign.Cursor {
	return slices.DeleteFunc(campaign.Lacking(v.Held, v.LastSeq), func(c campaign.Cursor) bool { return c.Projection != projection })
}

// replayedHeld are the projections that are not live and can be replayed.
func (v ReadModelView) replayedHeld() []campaign.Cursor {
	return slices.DeleteFunc(slices.Clone(v.Held), func(c campaign.Cursor) bool {
		_, failed := v.FailedBy(c.Projection)
		return failed
	})
}

// failed is the projections that could not replay an event.
func (v ReadModelView) failed() []timetravel.ModelStanding {
	return slices.DeleteFunc(slices.Clone(v.Standings), func(s timetravel.ModelStanding) bool { return s.FailedSeq == 0 })
}

// setBy says what set a cell.
func setBy(c timetravel.ModelCell) string {
	if c.SetSeq == 0 {
		return "set by an event before those that are kept"
	}
	return fmt.Sprintf("set by event %d, %s", c.SetSeq, c.Statement)
}

// modelText is a value in a table: its beginning if it is long.
func modelText(value json.RawMessage) string {
	text := ui.Visible(jobs.PlainJSON(value))
	if len(text) <= modelInline {
		return text
	}
	return strings.ToValidUTF8(text[:modelInline], "") + "…"
}

// modelTwins are the shell equivalents of a read model's page.
func modelTwins(p ui.Page, v ReadModelView) ui.Twins {
	t := ui.Twins{Curl: p.CurlGet(p.Links.API().ReadModel(v.Query))}
	if !p.CommandLoads() {
		return t
	}
	cli := p.Program() + "campaigns rows"
	if v.Query.Seq > 0 {
		cli += " --seq=" + ui.Itoa(v.Query.Seq)
	}
	if v.Query.Table != "" {
		cli += " --table=" + event.ShellWord(v.Query.Table)
	}
	t.CLI = cli + " -- " + event.ShellWord(v.Query.CampaignID)
	return t
}

// onlyChanged leaves out the columns that the event changed in no row, if it added and removed none.
func onlyChanged(t timetravel.ModelTable) timetravel.ModelTable {
	changed := map[string]bool{}
	for _, row := range t.Rows {
		if row.Kind != projection.RowChanged {
			return t
		}
		for _, c := range row.Cells {
			changed[c.Name] = changed[c.Name] || c.Changed
		}
	}
	rows := slices.Clone(t.Rows)
	for i := range rows {
		rows[i].Cells = slices.DeleteFunc(slices.Clone(rows[i].Cells), func(c timetravel.ModelCell) bool { return !changed[c.Name] })
	}
	t.Rows = rows
	return t
}
