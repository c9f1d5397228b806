package handlers

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// searchQuery is what was typed into the search box.
type searchQuery struct {
	Q string `json:"q" validate:"text,maxbytes=500"`
}

// searchPage looks for anything by its id. It leads to the only thing that the text certainly names.
func (s *server) searchPage(w http.ResponseWriter, r *http.Request) error {
	found, err := s.find(r)
	if err != nil {
		return err
	}
	if found.Text == "" {
		return seeOther(w, s.linksOf(r).SearchEvents(search.EventFilter{}))
	}
	if only, ok := found.Only(); ok {
		return seeOther(w, campaigns.FindingURL(s.linksOf(r), only))
	}
	return s.render(w, r, http.StatusOK, s.page(r, "Search", ""), pageOf(campaigns.SearchPage, found))
}

// suggestions answers with the options of the search box's list, which its script requests.
func (s *server) suggestions(w http.ResponseWriter, r *http.Request) error {
	found, err := s.find(r)
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, s.page(r, "Search", ""), pageOf(campaigns.Suggestions, found))
}

// find looks for what the reader typed, and for the actions that it asks for.
func (s *server) find(r *http.Request) (search.Findings, error) {
	var q searchQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return search.Findings{}, err
	}
	f, err := s.Find(r.Context(), q.Q)
	if err == nil {
		err = s.findActions(r, &f)
		f.Found = search.SortFindings(f.Found)
	}
	return f, err
}

// Found is what a search has found, as scripts read it.
type Found struct {
	Text  string      `json:"text" redact:"-"`
	Found []FoundItem `json:"found"`
}

// FoundItem is one thing that was found.
type FoundItem struct {
	Kind    search.FindingKind `json:"kind"`
	Certain bool               `json:"certain"` // the text names this and nothing else of its kind
	Title   string             `json:"title" redact:"-"`
	Note    string             `json:"note"`
	URL     string             `json:"url" redact:"-"` // of its page, without the origin
}

func (s *server) findAnswer(r *http.Request) (Found, error) {
	f, err := s.find(r)
	return FoundIn(s.linksOf(r), f), err
}

// FoundIn is what was found, with addresses of these links.
func FoundIn(l ui.Links, f search.Findings) Found {
	answer := Found{Text: f.Text, Found: []FoundItem{}}
	for _, one := range f.Found {
		answer.Found = append(answer.Found, FoundItem{one.Kind, one.Certain, campaigns.FindingTitle(one), one.Note, string(campaigns.FindingURL(l, one))})
	}
	return answer
}

// findActions finds the actions that the reader may do, of a text such as "pause acct-7": they are on the pages
// that they lead to.
func (s *server) findActions(r *http.Request, f *search.Findings) error {
	verb, rest, _ := strings.Cut(f.Text, " ")
	verb = strings.ToLower(verb)
	p := s.plainFrame(r, "", "")
	offer := func(action operator.Action, words, page string) {
		if p.Offers(action) {
			f.Found = append(f.Found, search.Finding{Kind: search.FoundAction, Name: words, Page: page})
		}
	}
	run := func(kind replay.RunKind, order replay.RunRequest) string {
		order.Kind = kind
		return campaign.PagePath(order.Query(), "runs", "new")
	}
	for _, kind := range []replay.RunKind{replay.RunVerify, replay.RunReplay, replay.RunRebuild} {
		if verb == string(kind) && rest == "" {
			offer(operator.ActionRunStart, titled(string(kind))+" all campaigns…", run(kind, replay.RunRequest{All: true}))
		}
	}
	if verb == "requeue" && rest == "" {
		offer(operator.ActionOperationStart, "Requeue dead rows with a canary…", "/operations/new")
	}
	if verb == "mark" {
		offer(operator.ActionMark, "Mark this moment…", "/charts#mark-form")
	}
	if rest == "" || !slices.Contains(verbs, verb) {
		return nil
	}
	named, err := s.Find(r.Context(), rest)
	for _, one := range named.Found {
		switch {
		case one.Kind == search.FoundCampaign && (verb == "pause" || verb == "resume"):
			offer(operator.ActionPause, titled(verb)+" campaign "+one.CampaignID+"…", campaign.PagePath(nil, "campaigns", one.CampaignID)+"#"+verb+"-form")
		case one.Kind == search.FoundCampaign:
			if kind := replay.RunKind(verb); kind != "requeue" {
				offer(operator.ActionRunStart, titled(verb)+" campaign "+one.CampaignID+"…", run(kind, replay.RunRequest{Campaigns: []string{one.CampaignID}}))
			}
		case one.Kind == search.FoundProjection && (verb == "pause" || verb == "resume"):
			offer(operator.ActionProjectionPause, titled(verb)+" projection "+one.Name+"…", campaign.PagePath(nil, "projections", one.Name))
		case one.Kind == search.FoundPublisher && (verb == "pause" || verb == "resume"):
			offer(operator.ActionPublisherPause, titled(verb)+" publisher "+one.Name+"…", campaign.PagePath(nil, append([]string{"publishers"}, strings.SplitN(one.Name, "/", 2)...)...))
		case one.Kind == search.FoundCause && verb == "requeue":
			offer(operator.ActionOperationStart, "Requeue the rows with "+one.Note+"…", campaign.PagePath(url.Values{"fingerprint": {one.Fingerprint}}, "failures"))
		}
	}
	return err
}

// verbs are the actions that a search may ask for, on what follows.
var verbs = []string{"pause", "resume", "verify", "replay", "rebuild", "requeue"}

// Find looks for everything that a text may name, for a process with these features.
func (c *Config) Find(ctx context.Context, text string) (search.Findings, error) {
	text = strings.Join(strings.Fields(text), " ")
	f := search.Findings{Text: text, Asked: search.ParseAsked(text, c.Now())}
	if text == "" {
		return f, nil
	}
	var err error
	if f.Found, err = c.Search.Find(ctx, f.Asked, c.Redact); err != nil {
		return f, err
	}
	for _, look := range []func(context.Context, search.Asked) ([]search.Finding, error){c.findRejections(f.Found), c.findRun, c.findOperation, c.findProjections, c.findNamed, c.findActor} {
		some, err := look(ctx, f.Asked)
		if err != nil {
			return f, err
		}
		f.Found = append(f.Found, some...)
	}
	if len(f.Found) == 0 {
		f.Found, err = c.findText(ctx, f.Asked)
	}
	f.Found = search.SortFindings(f.Found)
	return f, err
}

// findNamed finds publishers and sources by a part of their names.
func (c *Config) findNamed(ctx context.Context, a search.Asked) (found []search.Finding, err error) {
	text := strings.ToLower(a.Named())
	add := func(kind search.FindingKind, name, note string) {
		if strings.Contains(strings.ToLower(name), text) {
			found = append(found, search.Finding{Kind: kind, Certain: strings.EqualFold(name, text), Name: name, Note: note})
		}
	}
	publishers, err := c.Publishers.Publishers(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range publishers {
		add(search.FoundPublisher, p.String(), string(p.Status))
	}
	sources, err := c.Intake.States(ctx)
	for _, source := range sources {
		add(search.FoundSource, source.Name, "")
	}
	return found, err
}

// findActor finds who is named whole and has done something, and what was done by a request.
func (c *Config) findActor(ctx context.Context, a search.Asked) (found []search.Finding, err error) {
	for _, f := range []operator.AuditFilter{{Actor: a.Named()}, {RequestID: a.Named()}} {
		page := campaign.PagePath(request.Values(f), "audit")
		f.Limit = 1
		acts, err := c.Queue.LatestActs(ctx, f)
		if err != nil {
			return nil, err
		}
		if len(acts) > 0 {
			found = append(found, search.Finding{Kind: search.FoundActor, Certain: true, Name: a.Named(), Page: page,
				Note: "last at " + event.Minute(acts[0].At)})
		}
	}
	return found, nil
}

// findText finds what nothing is named by in the latest events, such as a correlation id.
func (c *Config) findText(ctx context.Context, a search.Asked) (found []search.Finding, err error) {
	f := search.EventFilter{Q: a.Named(), Shown: c.Redact, Limit: 1, Within: 50 * time.Millisecond}
	page, err := c.Search.Events(ctx, f)
	if len(page.Items) > 0 {
		found = []search.Finding{{Kind: search.FoundText, Certain: true, Name: a.Named(), Events: search.EventFilter{Q: a.Named()}, Note: "the latest is event " + strconv.FormatInt(page.Items[0].Seq, 10) + " of " + page.Items[0].CampaignID}}
	}
	return found, err
}

// findRejections finds rejected rows of sources. The page of a campaign that is found too names its own.
func (c *Config) findRejections(found []search.Finding) func(context.Context, search.Asked) ([]search.Finding, error) {
	return func(ctx context.Context, a search.Asked) ([]search.Finding, error) {
		rejected, err := c.Intake.Find(ctx, a, c.Redact)
		for i := range rejected {
			rejected[i].Certain = !slices.ContainsFunc(found, func(f search.Finding) bool {
				return f.Kind == search.FoundCampaign && f.Certain && f.CampaignID == rejected[i].CampaignID
			})
		}
		return rejected, err
	}
}

func (c *Config) findRun(ctx context.Context, a search.Asked) ([]search.Finding, error) {
	return numbered(ctx, a, search.FoundRun, c.Runs.Get, func(run replay.Run) string { return string(run.Kind) + ", " + string(run.Status) })
}

func (c *Config) findOperation(ctx context.Context, a search.Asked) ([]search.Finding, error) {
	return numbered(ctx, a, search.FoundOperation, c.Operations.Get, func(o operations.OperationDetail) string { return string(o.Status) })
}

// numbered finds what the words name by its number, with a note on what it is.
func numbered[T any](ctx context.Context, a search.Asked, kind search.FindingKind, get func(context.Context, int64) (T, error), note func(T) string) ([]search.Finding, error) {
	id, ok := a.Number(kind)
	if !ok {
		return nil, nil
	}
	one, err := get(ctx, id)
	if errors.Is(err, event.ErrNotFound) {
		return nil, nil
	}
	return []search.Finding{{Kind: kind, Certain: true, ID: id, Note: note(one)}}, err
}

// findProjections finds loaded projections by a part of their names.
func (c *Config) findProjections(_ context.Context, a search.Asked) ([]search.Finding, error) {
	var found []search.Finding
	for _, p := range c.Projections {
		if strings.Contains(p.Name, strings.ToLower(a.Named())) {
			found = append(found, search.Finding{Kind: search.FoundProjection, Certain: p.Name == a.Named(), Name: p.Name})
		}
	}
	return found, nil
}

// titled begins a word with a capital letter.
func titled(verb string) string { return strings.ToUpper(verb[:1]) + verb[1:] }
