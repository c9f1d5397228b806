package handlers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// page returns the frame of the page that r asks for. A page that refreshes itself sets Self, one
// with a JSON equivalent sets Twin.
func (s *server) page(r *http.Request, title, nav string) ui.Page {
	p := s.plainFrame(r, title, nav)
	if facts, err := s.Facts.Read(r.Context()); err == nil { // without them the page is worth reading, too
		p.Findings, p.NoneDead, p.Loaded, p.Around.Ends = facts.Findings, facts.Summary.Counts.Dead == 0, facts.Loaded, facts.Summary.PauseEnds
	}
	return p
}

// findings are what is wrong now, the worst first.
func (s *server) findings(ctx context.Context) (finding.List, error) {
	facts, err := s.Facts.Read(ctx)
	return facts.Findings, err
}

// plainFrame is page for content that needs no database: documents and errors.
func (s *server) plainFrame(r *http.Request, title, nav string) ui.Page {
	return ui.Page{
		Key:        requestID(r),
		Links:      s.linksOf(r),
		Me:         me(r),
		SignOut:    ui.URL(s.SignOut),
		Flags:      s.CommandFlags,
		Origin:     s.origin(r),
		Title:      title,
		Nav:        nav,
		Mode:       s.Mode,
		Around:     campaign.Surroundings{Mode: s.Mode},
		ReadOnly:   s.ReadOnly,
		Embedded:   s.Embedded,
		DryRun:     s.DryRun != nil,
		Travel:     s.Travel != nil,
		Rehearse:   s.Rehearse != nil,
		ReasonFrom: s.ReasonFrom,
		Version:    s.Version,
		Running:    campaign.RunningOf(s.Version, s.Projections),
		Now:        s.Now().UTC(),
	}
}

// actingPage is page with what judges its actions: the projections that fail now, and the cause that
// would be retried, by its error; empty for none. Without these the page is worth reading, too.
func (s *server) actingPage(r *http.Request, title, nav, cause string) ui.Page {
	p := s.page(r, title, nav)
	facts, err := s.Facts.Read(r.Context())
	if err != nil {
		return p
	}
	p.Failing = facts.Failing()
	for _, g := range facts.Groups.Groups {
		if cause != "" && g.Fingerprint == cause {
			judged := campaign.ErrorGroups{Groups: []campaign.ErrorGroup{g}}.Assessed(p.Running, nil)
			_ = s.Runs.RestOnRehearsals(r.Context(), judged, s.Projections) // without them it is judged by its attempts
			p.Judged = &ui.Judged{Fingerprint: cause, Verdict: judged[0].Verdict, Outlook: judged[0].Outlook}
		}
	}
	return p
}

func (s *server) summary(r *http.Request) (campaign.Summary, error) {
	facts, err := s.Facts.Read(r.Context())
	return facts.Summary, err
}

// alarmHeader tells a page's script the alarm: its level and text, or nothing.
const alarmHeader = "Outboxweb-Alarm"

// watch answers with the alarm alone, for pages that do not refresh.
func (s *server) watch(w http.ResponseWriter, r *http.Request) error {
	all, err := s.findings(r.Context())
	if err != nil {
		return err
	}
	setAlarm(w.Header(), all)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func setAlarm(h http.Header, all finding.List) {
	text := all.Short()
	if text != "" {
		text = string(all.Worst()) + " " + text
	}
	h.Set(alarmHeader, text)
}

// around returns the state that every campaign's progress depends on; only the mode of this process if the
// rest cannot be read.
func (s *server) around(ctx context.Context) campaign.Surroundings {
	summary, err := s.Store.Summary(ctx)
	if err != nil {
		return campaign.Surroundings{Mode: s.Mode}
	}
	pace, err := s.Samples.Pace(ctx)
	if err != nil {
		pace = 0
	}
	around := summary.Surroundings()
	around.Pace = pace
	return around
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// auditEntryQuery names the action that led to a page.
type auditEntryQuery struct {
	Act int64 `json:"act" validate:"min=0"`
}

// flash reads the action whose outcome the page shows: the one named in the query.
func (s *server) flash(r *http.Request, p *ui.Page) error {
	var q auditEntryQuery
	if err := fill(&q, r.URL.Query()); err != nil || q.Act == 0 {
		return err
	}
	act, err := s.Store.AuditEntry(r.Context(), q.Act)
	if errors.Is(err, event.ErrNotFound) {
		return nil
	}
	if act.Outcome == operator.AuditDone {
		p.Flash, p.After = &act, s.aftermath(r.Context(), act)
	}
	return err
}

// renderActed is renderLive for a page that shows the outcome of the action that led to it.
func (s *server) renderActed(w http.ResponseWriter, r *http.Request, p ui.Page, whole, live pageFunc) error {
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.renderLive(w, r, p, whole, live)
}

// actHeader names the action whose outcome a page shows when it requests its live part again;
// sinceHeader answers with its aftermath: level and text.
const (
	actHeader   = "Outboxweb-Act"
	sinceHeader = "Outboxweb-Since"
)

// noteSince tells a page's script whether the shown action still describes the current state.
func (s *server) noteSince(h http.Header, r *http.Request) {
	id, err := strconv.ParseInt(r.Header.Get(actHeader), 10, 64)
	if err != nil {
		return
	}
	act, err := s.Store.AuditEntry(r.Context(), id)
	if err != nil || act.Outcome != operator.AuditDone {
		return
	}
	if after := s.aftermath(r.Context(), act); after.Text != "" {
		h.Set(sinceHeader, string(after.Level)+" "+after.Text)
	}
}

// aftermath tells, in ASCII, what became of an action; nothing if that cannot be read.
func (s *server) aftermath(ctx context.Context, act operator.AuditEntry) campaign.Aftermath {
	var none, of campaign.Aftermath
	if act.Action.Effect() == operator.TriesRow {
		d, err := s.Queue.RowWithin(ctx, act.CampaignID, act.Seq, 0)
		switch {
		case err == nil:
			of = campaign.OfRow(act, &d)
		case errors.Is(err, event.ErrNotFound):
			of = campaign.OfRow(act, nil)
		}
		if of.Level == finding.Warn {
			return of
		}
	}
	if act.CampaignID == "" && act.Target == "" {
		return none
	}
	latest, err := s.Store.LatestActs(ctx, operator.AuditFilter{CampaignID: act.CampaignID, Seq: act.Seq, Target: act.Target, Outcome: operator.AuditDone, Since: act.At, Limit: 20})
	if err != nil {
		return none
	}
	if slices.ContainsFunc(latest, act.SupersededBy) {
		return campaign.Changed
	}
	return of
}

// done redirects from an action to the page that shows its outcome. If its audit record cannot be
// read just now, the page is shown without the sentence about it.
func (s *server) done(w http.ResponseWriter, r *http.Request, to ui.URL) error {
	act, err := s.recorded(r)
	if err != nil {
		s.Logger.Warn("read the record of an action", operator.RequestIDs(r.Context()), "err", err)
	}
	return seeOther(w, ui.WithAction(to, act))
}

// recorded returns the audit record of a request's action: the one it wrote or, if the action was
// done before under the same key, the earlier one. It is 0 when there is none.
func (s *server) recorded(r *http.Request) (int64, error) {
	if key := idempotencyKey(r); key != "" {
		return s.Store.AuditEntryOfKey(r.Context(), key)
	}
	latest, err := s.Store.LatestActs(r.Context(), operator.AuditFilter{Limit: 20})
	for _, a := range latest {
		if a.RequestID == requestID(r) && a.Outcome == operator.AuditDone {
			return a.ID, err
		}
	}
	return 0, err
}
