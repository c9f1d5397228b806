package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/overview"
)

func (s *server) failuresPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := failureFilter(campaign.FailureOpen)(r)
	if err != nil {
		return err
	}
	stuck, err := s.Store.ReadModel().Failures(r.Context(), filter)
	if err != nil {
		return err
	}
	all, found, err := s.causes(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "Failures", "Failures")
	p.Self, p.Twin = s.linksOf(r).FailuresOf(filter), s.linksOf(r).API().FailureGroups()
	view := overview.FailuresView{All: all, Found: found, Fingerprint: filter.Fingerprint, Filter: filter, Stuck: stuck}
	for _, g := range all {
		if len(g.Worst) > 0 && (g.Fingerprint == filter.Fingerprint || len(all) == 1 && filter.Fingerprint == "") {
			view.Explained = s.explainExample(r.Context(), g.Worst[0])
		}
	}
	if view.Quarantined, view.More, err = s.Store.ReadModel().QuarantineCauses(r.Context()); err != nil {
		return err
	}
	if h, err := s.Samples.History(r.Context(), samples.Range{Name: samples.RangeDay}); err == nil {
		view.Markers = h.Markers // without them the page is worth reading, too
	}
	return s.renderActed(w, r, p, pageOf(overview.FailuresPage, view), pageOf(overview.FailuresLive, view))
}

// retryGroupForm makes the failed rows of one error due now.
func (s *server) retryGroupForm(w http.ResponseWriter, r *http.Request) error {
	var form campaign.NoteRequest
	if err := fill(&form, r.PostForm); err != nil {
		return err
	}
	filter := campaign.RequeueFilter{Fingerprint: form.Fingerprint, Limit: event.MaxRequeue}
	if _, err := s.Queue.RetryFailed(r.Context(), s.command(r, "page", form), filter); err != nil {
		return err
	}
	return s.done(w, r, s.linksOf(r).FailureGroup(form.Fingerprint))
}

// failureGroups are the errors that rows have in common.
type failureGroups struct {
	items[campaign.AssessedGroup]
	Capped    bool                     `json:"capped"` // not all failed or dead rows were examined, so that counts of groups are lower bounds
	More      bool                     `json:"more"`   // there are more errors than these
	Rehearsed campaign.RehearsedEvents `json:"rehearsed"`
	// by which errors projections are quarantined; their rows are applied, so that no group counts them
	Quarantined []campaign.QuarantineCause `json:"quarantined" api:"max=100"`
}

func (s *server) readFailureGroups(r *http.Request) (failureGroups, error) {
	groups, all, err := s.causes(r.Context())
	if err != nil {
		return failureGroups{}, err
	}
	quarantined, more, err := s.Store.ReadModel().QuarantineCauses(r.Context())
	return failureGroups{listOf(groups), all.Capped(), all.More || more, all.Rehearsed, quarantined}, err
}

func (s *server) readCampaignHistory(ctx context.Context, id string, over samples.Range) (none items[samples.CampaignPoint], err error) {
	if _, err := s.Store.Campaign(ctx, id); err != nil {
		return none, err
	}
	points, err := s.Samples.CampaignHistory(ctx, id, over)
	return listOf(points), err
}
