package handlers

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/admission"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/subscription"
	"github.com/outboxweb/outboxweb/web/templates/delivery"
)

func (s *server) publishersPage(w http.ResponseWriter, r *http.Request) error {
	list, err := filter[subscription.PublisherFilter](s)(r)
	if err != nil {
		return err
	}
	list.ByState = true
	v := delivery.PublishersView{Filter: list}
	if v.All, err = s.Publishers.Publishers(r.Context()); err != nil {
		return err
	}
	if v.Page, err = s.Publishers.Page(r.Context(), list); err != nil {
		return err
	}
	if v.Range, err = s.pageRange(r); err != nil {
		return err
	}
	if v.History, err = s.Samples.History(r.Context(), v.Range); err != nil {
		return err
	}
	if v.History.Series, err = s.Publishers.LagSeries(r.Context(), v.Range); err != nil {
		return err
	}
	p := s.page(r, "Publishers", "Publishers")
	p.Self, p.Twin = s.linksOf(r).PublishersOf(list), s.linksOf(r).API().Publishers()
	return s.renderActed(w, r, p, pageOf(delivery.PublishersPage, v), pageOf(delivery.PublishersLive, v))
}

func (s *server) publisherPage(w http.ResponseWriter, r *http.Request) error {
	name, err := subscriptionParam(r)
	if err != nil {
		return err
	}
	view := delivery.PublisherView{Tests: s.TestPublisher != nil}
	if view.Range, err = s.pageRange(r); err != nil {
		return err
	}
	if view.Publisher, err = s.Publishers.Publisher(r.Context(), name); err != nil {
		return err
	}
	all, err := s.Publishers.Publishers(r.Context())
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.SubscriptionName.Publisher == name.Publisher {
			view.SameName = append(view.SameName, other)
		}
	}
	if view.History, err = s.Publishers.History(r.Context(), name, view.Range); err != nil {
		return err
	}
	if view.Acts, err = s.Store.AuditLogOf(r.Context(), activityShownOf, operator.PublisherTarget(name), operator.PublishersTarget(name.Publisher), operator.JournalTarget()); err != nil {
		return err
	}
	p := s.page(r, "Publisher "+name.String(), "Publishers")
	p.Self, p.Twin = s.linksOf(r).Publisher(name), s.linksOf(r).API().Publisher(name)
	return s.renderActed(w, r, p, pageOf(delivery.PublisherPage, view), pageOf(delivery.PublisherLive, view))
}

// seekForm is what the page of a seek shows as it was typed.
type seekForm struct {
	To       string `json:"to" validate:"omitempty,oneof=head beginning position time"`
	Position string `json:"position" validate:"text,maxbytes=20"`
	Time     string `json:"time" validate:"text,maxbytes=40"`
	Reason   string `json:"reason" validate:"reason"`
}

// readSeek reads the request of a seek from the page. Position and time count only if to selects
// them, since the page has a field for each; without to nothing is asked for yet.
func readSeek(values url.Values) (form seekForm, asked subscription.SeekRequest, err error) {
	if err = fill(&form, values); err != nil || form.To == "" {
		return form, asked, err
	}
	chosen := maps.Clone(values)
	for name, text := range map[string]string{"position": form.Position, "time": form.Time} {
		chosen.Del(name)
		if form.To == name {
			chosen.Del("to")
			chosen.Set(name, strings.TrimSpace(text))
		}
	}
	err = fill(&asked, chosen)
	switch {
	case err != nil:
	case form.To == "position" && asked.Position == nil:
		err = event.Invalid("position", "a position is a whole number from 0, not %q", form.Position)
	case form.To == "time" && asked.Time == "":
		err = event.Invalid("time", "give a time, such as 2026-11-21T07:30:00Z")
	}
	return form, asked, err
}

// seekPage asks for the new position of a publisher and previews the move.
func (s *server) seekPage(w http.ResponseWriter, r *http.Request) error {
	name, err := subscriptionParam(r)
	if err != nil {
		return err
	}
	form, asked, err := readSeek(r.URL.Query())
	if err != nil {
		return err
	}
	view := delivery.SeekView{To: form.To, Position: form.Position, Time: form.Time, Reason: form.Reason, Asked: asked, Key: uuid.NewString()}
	if view.Publisher, err = s.Publishers.Publisher(r.Context(), name); err != nil {
		return err
	}
	if form.To != "" {
		preview, err := s.previewSeek(r.Context(), name, asked)
		if err != nil {
			return err
		}
		view.Preview = &preview
	}
	p := s.page(r, "Seek publisher "+name.String(), "Publishers")
	return s.render(w, r, http.StatusOK, p, pageOf(delivery.SeekPage, view))
}

func (s *server) seekForm(w http.ResponseWriter, r *http.Request) error {
	name, err := subscriptionParam(r)
	if err != nil {
		return err
	}
	form, asked, err := readSeek(r.PostForm)
	if err == nil && form.To == "" {
		err = event.Invalid("to", "choose a new position")
	}
	if err == nil {
		_, err = s.seek(r, "page", name, asked)
	}
	if err != nil {
		return err
	}
	return s.done(w, r, s.linksOf(r).Publisher(name))
}

func (s *server) seek(r *http.Request, via string, name operator.SubscriptionName, asked subscription.SeekRequest) (operator.Seek, error) {
	target, err := asked.Target()
	if err != nil {
		return operator.Seek{}, err
	}
	return s.Publishers.Seek(r.Context(), s.command(r, via, asked), name, target, asked.Seen())
}

func (s *server) previewSeek(ctx context.Context, name operator.SubscriptionName, asked subscription.SeekRequest) (operator.Seek, error) {
	target, err := asked.Target()
	if err != nil {
		return operator.Seek{}, err
	}
	return admission.Within(ctx, s.previewing, func() (operator.Seek, error) { return s.Publishers.PreviewSeek(ctx, name, target) })
}
