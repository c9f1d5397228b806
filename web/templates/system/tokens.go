package system

import (
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func tokenAnchor(t operator.Token) string {
	if t.Name != "" {
		return "token-" + t.Name
	}
	return "token-" + ui.Itoa(t.ID)
}

func revokeFormID(t operator.Token) string { return "revoke-form-" + ui.Itoa(t.ID) }

func canRevoke(p ui.Page, t operator.Token) bool {
	return t.Name == "" && p.Offers(operator.ActionTokenRevoke) && t.State(p.Now) == "valid"
}
