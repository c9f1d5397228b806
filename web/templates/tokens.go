package templates

import (
	"encoding/json"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Tokens is the list of API tokens; RevokeToken revokes one.
func (l Links) Tokens() URL { return l.at(nil, "tokens") }

func tokenAnchor(t outbox.Token) string {
	if t.Name != "" {
		return "token-" + t.Name
	}
	return "token-" + itoa(t.ID)
}

func revokeFormID(t outbox.Token) string { return "revoke-form-" + itoa(t.ID) }

func canRevoke(p Page, t outbox.Token) bool {
	return t.Name == "" && p.Offers(outbox.ActionTokenRevoke) && t.State(p.Now) == "valid"
}

// tokenSentence describes an action on a token.
func tokenSentence(a outbox.AuditEntry) string {
	var d struct {
		ID   int64       `json:"token_id"`
		Role outbox.Role `json:"role"`
		Note string      `json:"note"`
	}
	if json.Unmarshal(a.After, &d) != nil || d.ID == 0 {
		return "Done: " + string(a.Action) + "."
	}
	what := "token " + itoa(d.ID) + ", with the role " + string(d.Role)
	if d.Note != "" {
		what += " (" + d.Note + ")"
	}
	if a.Action == outbox.ActionTokenRevoke {
		return "Revoked " + what + "."
	}
	return "Created " + what + "."
}

// tokenNote is the note of an action's token, from its audit record.
func tokenNote(a outbox.AuditEntry) string {
	var d struct {
		Note string `json:"note"`
	}
	if a.Action == outbox.ActionTokenCreate || a.Action == outbox.ActionTokenRevoke {
		_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	}
	return d.Note
}
