package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/web/templates/system"
)

// tokensPage is for admins. Tokens are created only on the command line, so that their text passes no
// browser.
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
	return s.render(w, r, http.StatusOK, p, pageOf(system.TokensPage, tokens))
}
