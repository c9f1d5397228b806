package handlers

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
)

// Limits on a run's page: log lines, and results of each outcome that needs attention.
const (
	logShown   = 20
	firstShown = 10
)

// runForm is a run's request on the page, where campaigns are also one per line.
type runForm struct {
	replay.RunStartRequest
	Lines   string `json:"campaigns" validate:"text"`
	Drifted int64  `json:"drifted" validate:"min=0"` // a verify: what it found to differ is to be rebuilt
}

func (f runForm) request() replay.RunRequest {
	for line := range strings.Lines(f.Lines) {
		if id := strings.TrimSpace(line); id != "" {
			f.Campaigns = append(f.Campaigns, id)
		}
	}
	return f.RunRequest
}

func (s *server) runsPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := filter[replay.RunFilter](s)(r)
	if err != nil {
		return err
	}
	p := s.page(r, "Runs", "Runs")
	p.Self, p.Twin = s.linksOf(r).Runs(filter), s.linksOf(r).API().Runs(filter)
	runs := list[replay.RunFilter, replay.Run]{"runs", s.Runs.List, jobs.RunsPage, jobs.RunsLive}
	return runs.show(s, w, r, p, filter)
}

// runLogQuery is the start of the log on a run's page.
type runLogQuery struct {
	Cursor string `json:"log" validate:"text"`
}

func (s *server) runPage(w http.ResponseWriter, r *http.Request) error {
	filter, log, err := asked[runLogQuery](r, resultFilter)
	if err != nil {
		return err
	}
	view, err := s.readRun(r.Context(), filter, log.Cursor)
	if err != nil {
		return err
	}
	p := s.actingPage(r, jobs.RunTitle(view.Run), "Runs", "")
	p.Self, p.Twin = s.linksOf(r).Run(view.Run.ID, filter, log.Cursor), s.linksOf(r).API().RunOf(view.Run.ID)
	return s.renderActed(w, r, p, pageOf(jobs.RunPage, view), pageOf(jobs.RunLive, view))
}

func (s *server) readRun(ctx context.Context, f replay.ResultFilter, log string) (v jobs.RunView, err error) {
	v.Filter, v.LogCursor = f, log
	if v.Run, err = s.Runs.Get(ctx, f.RunID); err != nil {
		return v, err
	}
	if v.Acts, err = s.Store.AuditLogOf(ctx, activityShownOf, operator.RunTarget(f.RunID)); err != nil {
		return v, err
	}
	if v.Run.Kind == replay.RunRehearse {
		rehearsal, err := s.readRehearsal(ctx, f.RunID)
		if err != nil {
			return v, err
		}
		v.Rehearsal = &rehearsal
	}
	if v.Results, err = s.Runs.Results(ctx, f); err != nil {
		return v, err
	}
	if n := v.Run.Counts; f.Outcome == "" && f.Cursor == "" && n.Failed+n.Drifted+n.NotCompared < v.Run.Campaigns.Total {
		for _, outcome := range jobs.FirstOutcomes {
			worst, err := s.Runs.Results(ctx, replay.ResultFilter{RunID: f.RunID, Outcome: outcome, Limit: firstShown})
			if err != nil {
				return v, err
			}
			v.First = append(v.First, worst.Items...)
		}
	}
	v.Log, err = s.Runs.Log(ctx, f.RunID, log, logShown)
	return v, err
}

func (s *server) runResultPage(w http.ResponseWriter, r *http.Request) error {
	id, err := runParam(r)
	if err != nil {
		return err
	}
	campaign, err := campaignParam(r)
	if err != nil {
		return err
	}
	var view jobs.RunResultView
	if view.Run, err = s.Runs.Get(r.Context(), id); err != nil {
		return err
	}
	if view.Result, err = s.Runs.ResultOf(r.Context(), id, campaign); err != nil {
		return err
	}
	view.Rows = s.rowNames(view.Result)
	p := s.page(r, jobs.RunResultTitle(view), "Runs")
	p.Twin = s.linksOf(r).API().RunResult(id, campaign)
	return s.render(w, r, http.StatusOK, p, pageOf(jobs.RunResultPage, view))
}

// newRunPage asks for a run's parameters and, once they suffice, previews it.
func (s *server) newRunPage(w http.ResponseWriter, r *http.Request) error {
	var form runForm
	if err := fill(&form, r.URL.Query()); err != nil {
		return err
	}
	view := jobs.NewRunView{Request: form.request(), Reason: form.Reason, Loaded: s.Projections, Key: uuid.NewString()}
	if form.Drifted > 0 {
		var err error
		if view.Request, err = s.Runs.RebuildOf(r.Context(), form.Drifted); err != nil {
			return err
		}
	}
	if o := view.Request; o.Kind != "" && (o.All || len(o.Campaigns) > 0) {
		preview, err := s.previewRun(r.Context(), o)
		switch refusal, ok := errors.AsType[*event.Refusal](err); {
		case err == nil:
			view.Preview = &preview
		case ok && !errors.Is(err, event.ErrBusy):
			view.Wrong = refusal.Detail
		default:
			return err
		}
	}
	if summary, err := s.Store.Summary(r.Context()); err == nil { // without it the page is worth reading, too
		view.Held, view.Versions = summary.Held, jobs.VersionsOf(s.Projections, summary.Installed)
	}
	p := s.actingPage(r, "Start a run", "Runs", "")
	return s.render(w, r, http.StatusOK, p, pageOf(jobs.NewRunPage, view))
}

func readRunForm(r *http.Request) (replay.RunStartRequest, error) {
	var form runForm
	err := fillForm(r, &form)
	form.RunRequest = form.request()
	return form.RunStartRequest, err
}
