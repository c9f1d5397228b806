package outbox

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Role is what somebody may do: a viewer looks, an operator repairs, an admin
// also does what cannot be taken back. Each includes the ones before it. The
// empty role is that of whoever may not even look.
type Role string

// The roles, from the least to the most.
const (
	RoleNone     Role = ""
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// Roles are the roles that can be given, from the least to the most.
var Roles = []Role{RoleViewer, RoleOperator, RoleAdmin}

// roleNames are the names of all roles after a prefix.
func roleNames(prefix string) []string {
	names := make([]string, len(Roles))
	for i, r := range Roles {
		names[i] = prefix + string(r)
	}
	return names
}

// AnyRole names the roles for a choice: "viewer, operator or admin".
func AnyRole() string { return OrList(roleNames("")) }

// RoleFlags names the flags that give roles: "--viewer, --operator and --admin".
func RoleFlags() string { return list(roleNames("--"), " and ") }

// ParseRole reads the name of a role.
func ParseRole(text string) (Role, error) {
	if r := Role(text); slices.Contains(Roles, r) {
		return r, nil
	}
	return RoleNone, Invalid("role", "unknown role %q; the roles are %s", text, list(roleNames(""), " and "))
}

// Includes reports whether who has the role may do what least is enough for.
func (r Role) Includes(least Role) bool {
	return least == RoleNone || slices.Index(Roles, r) >= max(slices.Index(Roles, least), 0)
}

// Auth is how it is known who somebody is.
type Auth string

// The ways of knowing who somebody is.
const (
	AuthLocal       Auth = "local"        // nobody was asked: whoever reaches a server without an authenticator
	AuthJWT         Auth = "jwt"          // a signed assertion of a proxy
	AuthProxyHeader Auth = "proxy-header" // a header of a trusted proxy
	AuthToken       Auth = "token"        // a bearer token of a machine
	AuthOS          Auth = "os"           // the operating system's user, on the command line
	AuthSystem      Auth = "system"       // outboxweb itself
)

// Identity is who makes a request, and what that one may do.
type Identity struct {
	Name   string   `json:"name"` // shown and recorded, such as "ana@example.org" or "token 3: deploy"
	Auth   Auth     `json:"auth"`
	Role   Role     `json:"role"`
	Groups []string `json:"groups"` // as the proxy named them; empty for tokens
}

// Operator is the identity as audit records have it. via is how the action came
// in, from the address of the socket's other end.
func (i Identity) Operator(via, from string) Operator {
	return Operator{Name: i.Name, Via: via, From: from, Auth: i.Auth, Role: i.Role}
}

// Local is whoever reaches a server that has no authenticator.
func Local() Identity { return Identity{Name: "local", Auth: AuthLocal, Role: RoleAdmin} }

// Token is a bearer token of a machine. Its text is known to nobody but who
// made it: the database has its SHA-256.
type Token struct {
	ID         int64      `json:"id"`
	Role       Role       `json:"role"`
	Note       string     `json:"note"` // what it is for
	CreatedAt  time.Time  `json:"created_at"`
	CreatedBy  string     `json:"created_by"`
	ExpiresAt  time.Time  `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"` // nil unless it was
	RevokedBy  string     `json:"revoked_by"`
	LastUsedAt *time.Time `json:"last_used_at"` // to the minute; nil when never
}

// State is valid, expired or revoked.
func (t Token) State(now time.Time) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case !now.Before(t.ExpiresAt):
		return "expired"
	}
	return "valid"
}

// Identity is who a machine is that shows the token.
func (t Token) Identity() Identity {
	name := "token " + strconv.FormatInt(t.ID, 10)
	if t.Note != "" {
		name += ": " + t.Note
	}
	return Identity{Name: name, Auth: AuthToken, Role: t.Role}
}

// Grants say which users and groups have which role, by exact match: an entry
// is "user:NAME", "group:NAME", or "*" for everyone who could be identified.
type Grants map[Role][]string

// Check names an entry that is none, with the role it was given.
func (g Grants) Check() error {
	for _, role := range Roles {
		for _, entry := range g[role] {
			kind, name, _ := strings.Cut(entry, ":")
			if entry != "*" && (kind != "user" && kind != "group" || strings.TrimSpace(name) == "" || strings.TrimSpace(name) != name) {
				return Invalid(string(role), "%q is not user:NAME, group:NAME or *", entry)
			}
		}
	}
	return nil
}

// RoleOf is the most that a user's name and groups are granted.
func (g Grants) RoleOf(name string, groups []string) Role {
	for _, role := range slices.Backward(Roles) {
		for _, entry := range g[role] {
			kind, of, _ := strings.Cut(entry, ":")
			if entry == "*" || kind == "user" && of == name || kind == "group" && slices.Contains(groups, of) {
				return role
			}
		}
	}
	return RoleNone
}

// SortTokens orders tokens: the valid ones first, then the newest.
func SortTokens(tokens []Token, now time.Time) {
	rank := func(t Token) int { return slices.Index([]string{"valid", "expired", "revoked"}, t.State(now)) }
	slices.SortFunc(tokens, func(a, b Token) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(b.ID, a.ID)) })
}

type requestKey struct{}

// WithRequestID notes the id of the request that something is done for: what
// its answer, the log and the audit record share.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestID is the id of the request that something is done for; empty when it
// is done for none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}
