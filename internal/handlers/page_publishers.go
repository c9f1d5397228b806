package handlers

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

func (s *server) routePublishers() {
	const sub = "/publishers/{topic}/{publisher}"
	s.get("/publishers", s.publishersPage, rangeQuery{}, paging{})
	s.get(sub, s.publisherPage, rangeQuery{})
	s.get(sub+"/seek", s.seekPage, seekQuery{})
	s.formAction(outbox.ActionPublisherSeek, s.seekForm)
}

func (s *server) publishersPage(w http.ResponseWriter, r *http.Request) error {
	list, err := filter[outbox.PublisherFilter](s)(r)
	if err != nil {
		return err
	}
	list.ByState = true
	v := templates.PublishersView{Filter: list}
	if v.All, err = s.Publishers.Publishers(r.Context()); err != nil {
		return err
	}
	if v.Page, err = s.Publishers.Page(r.Context(), list); err != nil {
		return err
	}
	if v.Range, err = s.readRange(r); err != nil {
		return err
	}
	if v.History, err = s.Store.History(r.Context(), v.Range); err != nil {
		return err
	}
	if v.History.Series, err = s.Publishers.LagSeries(r.Context(), v.Range); err != nil {
		return err
	}
	p := s.page(r, "Publishers", "Publishers")
	p.Self, p.Twin = s.linksOf(r).PublishersOf(list), s.linksOf(r).API().Publishers()
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.renderLive(w, r, p, pageOf(templates.PublishersPage, v), pageOf(templates.PublishersLive, v))
}

func (s *server) publisherPage(w http.ResponseWriter, r *http.Request) error {
	name, err := subscriptionParam(r)
	if err != nil {
		return err
	}
	view := templates.PublisherView{Tests: s.TestPublisher != nil}
	if view.Range, err = s.readRange(r); err != nil {
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
	if view.Acts, err = s.Store.AuditLogOf(r.Context(), activityShownOf, outbox.PublisherTarget(name), outbox.PublishersTarget(name.Publisher), outbox.JournalTarget()); err != nil {
		return err
	}
	p := s.page(r, "Publisher "+name.String(), "Publishers")
	p.Self, p.Twin = s.linksOf(r).Publisher(name), s.linksOf(r).API().Publisher(name)
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.renderLive(w, r, p, pageOf(templates.PublisherPage, view), pageOf(templates.PublisherLive, view))
}

// seekQuery is seekBody as a query. Position and time count only if to selects them, since the page
// has a field for each.
type seekQuery struct {
	To       string `json:"to" validate:"omitempty,oneof=head beginning position time"`
	Position string `json:"position" validate:"text,maxbytes=20"`
	Time     string `json:"time" validate:"text,maxbytes=40"`
	Reason   string `json:"reason" validate:"reason"`
	Confirm  string `json:"confirm" validate:"phrase"`
	Repeats  *int64 `json:"expected_repeats" validate:"omitnil,min=0"`
	Skips    *int64 `json:"expected_skips" validate:"omitnil,min=0"`
	Capped   string `json:"expected_capped" validate:"omitempty,oneof=true false"`
}

// body converts the query to the API's body.
func (q seekQuery) body() (b seekBody, err error) {
	switch q.To {
	case "":
		return b, outbox.Invalid("to", "choose a new position")
	case "position":
		n, err := strconv.ParseInt(strings.TrimSpace(q.Position), 10, 64)
		if err != nil {
			return b, outbox.Invalid("position", "a position is a whole number from 0, not %q", q.Position)
		}
		b.Position = &n
	case "time":
		if b.Time = strings.TrimSpace(q.Time); b.Time == "" {
			return b, outbox.Invalid("time", "give a time, such as 2026-11-21T07:30:00Z")
		}
	default:
		b.To = q.To
	}
	if q.Repeats != nil && q.Skips != nil {
		b.Expected = &seekShown{Repeats: *q.Repeats, Skips: *q.Skips, Capped: q.Capped == "true"}
	}
	return b, nil
}

// seekPage asks for the new position of a publisher and previews the move.
func (s *server) seekPage(w http.ResponseWriter, r *http.Request) error {
	name, q, err := asked[seekQuery](r, subscriptionParam)
	if err != nil {
		return err
	}
	view := templates.SeekView{To: q.To, Position: q.Position, Time: q.Time, Reason: q.Reason, Key: uuid.NewString()}
	if view.Publisher, err = s.Publishers.Publisher(r.Context(), name); err != nil {
		return err
	}
	if view.Preview, err = s.previewSeek(r.Context(), name, q); err != nil {
		return err
	}
	p := s.page(r, "Seek publisher "+name.String(), "Publishers")
	return s.render(w, r, http.StatusOK, p, pageOf(templates.SeekPage, view))
}

func (s *server) seekForm(w http.ResponseWriter, r *http.Request) error {
	name, err := subscriptionParam(r)
	if err != nil {
		return err
	}
	var q seekQuery
	if err := fill(&q, r.PostForm); err != nil {
		return err
	}
	if err := s.seekAsAsked(r, name, q); err != nil {
		return err
	}
	return s.done(w, r, s.linksOf(r).Publisher(name))
}

func (s *server) seekAsAsked(r *http.Request, name outbox.SubscriptionName, q seekQuery) error {
	body, err := q.body()
	if err != nil {
		return err
	}
	target, err := body.target()
	if err != nil {
		return err
	}
	_, err = s.Publishers.Seek(r.Context(), s.command(r, "page", q), name, target, body.seen())
	return err
}

// previewSeek previews a seek; nil before a target is given.
func (s *server) previewSeek(ctx context.Context, name outbox.SubscriptionName, q seekQuery) (*outbox.Seek, error) {
	if q.To == "" {
		return nil, nil
	}
	body, err := q.body()
	if err != nil {
		return nil, err
	}
	target, err := body.target()
	if err != nil {
		return nil, err
	}
	preview, err := s.previewSeekTo(ctx, name, target)
	return &preview, err
}
