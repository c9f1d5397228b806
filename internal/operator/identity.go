package operator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Role is a level of access: a viewer reads, an operator repairs, an admin also performs
// irreversible actions. Each role includes the ones before it. The empty role may not even read.
type Role string

// The roles, from least to most.
const (
	RoleNone     Role = ""
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// Roles are the roles that can be granted, from least to most.
var Roles = []Role{RoleViewer, RoleOperator, RoleAdmin}

func roleNames(prefix string) []string {
	names := make([]string, len(Roles))
	for i, r := range Roles {
		names[i] = prefix + string(r)
	}
	return names
}

// AnyRole lists the roles as alternatives: "viewer, operator or admin".
func AnyRole() string { return event.OrList(roleNames("")) }

// RoleFlags lists the flags that grant roles: "--viewer, --operator and --admin".
func RoleFlags() string { return event.Joined(roleNames("--"), " and ") }

// ParseRole parses the name of a role.
func ParseRole(text string) (Role, error) {
	if r := Role(text); slices.Contains(Roles, r) {
		return r, nil
	}
	return RoleNone, event.Invalid("role", "unknown role %q; the roles are %s", text, event.Joined(roleNames(""), " and "))
}

// Includes reports whether the role permits what least permits.
func (r Role) Includes(least Role) bool {
	return least == RoleNone || slices.Index(Roles, r) >= max(slices.Index(Roles, least), 0)
}

// Auth is how an identity was authenticated.
type Auth string

// The methods of authentication.
const (
	AuthLocal       Auth = "local"        // not authenticated: any client of a server without an authenticator
	AuthJWT         Auth = "jwt"          // a signed assertion of a proxy
	AuthProxyHeader Auth = "proxy-header" // a header of a trusted proxy
	AuthToken       Auth = "token"        // an API token
	AuthHost        Auth = "host"         // the program that outboxweb is embedded in
	AuthOS          Auth = "os"           // the operating system's user, on the command line
	AuthSystem      Auth = "system"       // outboxweb itself
)

// Auths are all methods of authentication.
var Auths = []Auth{AuthLocal, AuthJWT, AuthProxyHeader, AuthToken, AuthHost, AuthOS, AuthSystem}

// Identity is who makes a request, with its role.
type Identity struct {
	Name   string   `json:"name"` // shown and recorded, such as "ana@example.org" or "token 3: deploy"
	Auth   Auth     `json:"auth"`
	Role   Role     `json:"role"`
	Groups []string `json:"groups"` // from the proxy, those that a rule names; empty for tokens
	// Hints say why rules that seem meant for the user do not match.
	Hints []string `json:"-"`
}

// Operator returns the identity for audit records. via is the channel of the action, from the
// peer's address.
func (i Identity) Operator(via, from string) Operator {
	return Operator{Name: i.Name, Via: via, From: from, Auth: i.Auth, Role: i.Role}
}

// Local returns the identity of every client of a server without an authenticator.
func Local() Identity { return Identity{Name: "local", Auth: AuthLocal, Role: RoleAdmin} }

// Token is an API token. Its text is known only to its creator: the database has its SHA-256.
type Token struct {
	ID         int64      `json:"id"`            // 0 in the server's file of tokens
	Name       string     `json:"name,omitzero"` // in the server's file of tokens; absent in the database
	Role       Role       `json:"role"`
	Note       string     `json:"note"`                // its purpose
	CreatedAt  time.Time  `json:"created_at,omitzero"` // absent if it is in the file
	CreatedBy  string     `json:"created_by"`
	ExpiresAt  time.Time  `json:"expires_at,omitzero"` // absent if it is in the file: it never expires
	RevokedAt  *time.Time `json:"revoked_at"`          // nil unless revoked
	RevokedBy  string     `json:"revoked_by"`
	LastUsedAt *time.Time `json:"last_used_at"` // to the minute; nil if never
}

// State is valid, expired or revoked.
func (t Token) State(now time.Time) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		return "expired"
	}
	return "valid"
}

// Identity returns the identity of a client that sends the token.
func (t Token) Identity() Identity {
	if t.Name != "" {
		return Identity{Name: "token " + t.Name, Auth: AuthToken, Role: t.Role}
	}
	name := "token " + strconv.FormatInt(t.ID, 10)
	if t.Note != "" {
		name += ": " + t.Note
	}
	return Identity{Name: name, Auth: AuthToken, Role: t.Role}
}

// Grants map roles to users and groups, by exact match: an entry is "user:NAME", "group:NAME", or
// "*" for everyone who is authenticated.
type Grants map[Role][]string

// Check returns an error that names an invalid entry and its role.
func (g Grants) Check() error {
	for _, role := range Roles {
		for _, entry := range g[role] {
			kind, name, _ := strings.Cut(entry, ":")
			if entry != "*" && (kind != "user" && kind != "group" || strings.TrimSpace(name) == "" || strings.TrimSpace(name) != name) {
				return event.Invalid(string(role), "%q is not user:NAME, group:NAME or *", entry)
			}
		}
	}
	return nil
}

// RoleOf returns the highest role granted to a user's name and groups.
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

// NameGroups reports whether an entry names a group.
func (g Grants) NameGroups() bool {
	for _, entries := range g {
		if slices.ContainsFunc(entries, func(entry string) bool { return strings.HasPrefix(entry, "group:") }) {
			return true
		}
	}
	return false
}

// Naming returns those groups that an entry names.
func (g Grants) Naming(groups []string) (named []string) {
	for _, role := range Roles {
		for _, entry := range g[role] {
			if of, isGroup := strings.CutPrefix(entry, "group:"); isGroup && slices.Contains(groups, of) && !slices.Contains(named, of) {
				named = append(named, of)
			}
		}
	}
	return named
}

// Misspelt says which entries differ only in case from the user's name, or from one of the groups.
func (g Grants) Misspelt(name string, groups []string) (all []string) {
	for _, role := range Roles {
		for _, entry := range g[role] {
			kind, of, _ := strings.Cut(entry, ":")
			what, names := "group", groups
			if kind == "user" {
				what, names = "name", []string{name}
			}
			at := slices.IndexFunc(names, func(n string) bool { return of != "" && strings.EqualFold(n, of) })
			if at >= 0 && !slices.Contains(names, of) {
				all = append(all, fmt.Sprintf("--%s names %s, and your %s is %q, which differs in upper and lower case", role, entry, what, names[at]))
			}
		}
	}
	return all
}

// SortTokens orders tokens: valid ones first, then newest first.
func SortTokens(tokens []Token, now time.Time) {
	rank := func(t Token) int { return slices.Index([]string{"valid", "expired", "revoked"}, t.State(now)) }
	slices.SortFunc(tokens, func(a, b Token) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(b.ID, a.ID), cmp.Compare(a.Name, b.Name))
	})
}

type requestKey struct{}

type requestIDs struct{ own, proxys string }

// WithRequestID stores the id of the request that the context belongs to, which its answer, the log
// and the audit record share, and the one that a trusted proxy gave it, if any.
func WithRequestID(ctx context.Context, id, proxys string) context.Context {
	return context.WithValue(ctx, requestKey{}, requestIDs{id, proxys})
}

// RequestID returns the id of the context's request; empty if there is none.
func RequestID(ctx context.Context) string {
	ids, _ := ctx.Value(requestKey{}).(requestIDs)
	return ids.own
}

// ProxyRequestID returns the id that a trusted proxy gave the context's request, or empty.
func ProxyRequestID(ctx context.Context) string {
	ids, _ := ctx.Value(requestKey{}).(requestIDs)
	return ids.proxys
}

// RequestIDs returns both ids for a line of the log: request_id, and proxy_request_id if there is one.
func RequestIDs(ctx context.Context) slog.Attr {
	attrs := []slog.Attr{slog.String("request_id", RequestID(ctx))}
	if proxys := ProxyRequestID(ctx); proxys != "" {
		attrs = append(attrs, slog.String("proxy_request_id", proxys))
	}
	return slog.GroupAttrs("", attrs...)
}

// ViewOwner is whose views an identity keeps: its own, or those that everybody shares on a server
// without authentication.
func (i Identity) ViewOwner() string {
	if i.Auth == AuthLocal {
		return string(AuthLocal)
	}
	return string(i.Auth) + " " + i.Name
}
