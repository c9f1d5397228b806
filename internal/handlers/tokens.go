package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

// routeTokens adds the admins' pages and actions for API tokens. Tokens are created only on the
// command line, so that their text passes no browser.
func (s *server) routeTokens() {
	s.view(outbox.RoleAdmin, "/tokens", s.handle(s.tokensPage), nil)
}

func (s *server) tokensPage(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.Tokens.List(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "API tokens", "Tokens")
	p.Twin = s.linksOf(r).API().Tokens()
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, p, pageOf(templates.TokensPage, tokens))
}
