package handlers

import (
	"net/http"

	"outboxweb/internal/outbox"
	"outboxweb/web/templates"
)

// routeTokens adds what admins see and do about the tokens of machines. A token
// is made on the command line alone, so that its text passes no browser.
func (s *server) routeTokens() {
	s.view(outbox.RoleAdmin, "/tokens", s.handle(s.tokensPage))
}

func (s *server) tokensPage(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.Tokens.List(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "API tokens", "")
	p.Twin = s.linksOf(r).API().Tokens()
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, p, pageOf(templates.TokensPage, tokens))
}

// tokenParam is the number of the token in an address.
func tokenParam(r *http.Request) (int64, error) {
	return numberParam(r, "token", "a token id is")
}
