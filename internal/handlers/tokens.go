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
	s.formAct(outbox.ActTokenRevoke, s.revokeTokenForm)
}

func (s *server) tokensPage(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.Store.Tokens(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "Tokens", "")
	p.Twin = s.linksOf(r).API().Tokens()
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, p, pageOf(templates.TokensPage, tokens))
}

func (s *server) revokeTokenForm(w http.ResponseWriter, r *http.Request) error {
	id, err := tokenParam(r)
	if err != nil {
		return err
	}
	order, to, err := s.formOrder(r, s.linksOf(r).Tokens(), s.linksOf(r).Tokens())
	if err != nil {
		return err
	}
	if _, err := s.Store.RevokeToken(r.Context(), order, id); err != nil {
		return err
	}
	return s.done(w, r, to)
}

func (s *server) apiTokens(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.Store.Tokens(r.Context())
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, listOf(tokens))
}

func (s *server) apiRevokeToken(w http.ResponseWriter, r *http.Request) error {
	id, err := tokenParam(r)
	if err != nil {
		return err
	}
	order, err := s.decodeOrder(r)
	if err != nil {
		return err
	}
	token, err := s.Store.RevokeToken(r.Context(), order, id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, token)
}

// tokenParam is the number of the token in an address.
func tokenParam(r *http.Request) (int64, error) {
	return numberParam(r, "token", "a token is known by")
}
