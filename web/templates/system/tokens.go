package system

import (
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func tokenAnchor(t outbox.Token) string {
	if t.Name != "" {
		return "token-" + t.Name
	}
	return "token-" + ui.Itoa(t.ID)
}

func revokeFormID(t outbox.Token) string { return "revoke-form-" + ui.Itoa(t.ID) }

func canRevoke(p ui.Page, t outbox.Token) bool {
	return t.Name == "" && p.Offers(outbox.ActionTokenRevoke) && t.State(p.Now) == "valid"
}
