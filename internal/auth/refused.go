package auth

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// Reasons of refusals, as counted.
const (
	whyAbsent      = "absent"      // no credentials
	whyDuplicate   = "duplicate"   // a header occurs twice
	whyMalformed   = "malformed"   // a header, assertion or token is malformed
	whyVariant     = "variant"     // a header name differs in - and _, or in case
	whyUntrusted   = "untrusted"   // a header of the proxy, from another peer
	whyProxied     = "proxied"     // from a proxy, which only authentication admits
	whyTogether    = "together"    // a token and a header of the proxy
	whySecret      = "secret"      // the proxy's secret is missing or wrong
	whySignature   = "signature"   // no key of the issuer fits
	whyIssuer      = "issuer"      // the assertion is another issuer's
	whyAudience    = "audience"    // the assertion is for another audience
	whyExpired     = "expired"     // the token is no longer valid
	whyOutlived    = "outlived"    // the assertion has expired, and its proxy still sends it
	whyFuture      = "future"      // the assertion is not valid yet
	whyClaims      = "claims"      // the assertion does not name a user
	whyName        = "name"        // the user's name cannot be one
	whyGroups      = "groups"      // the header with the groups is malformed
	whyUnknown     = "unknown"     // no such token
	whyRevoked     = "revoked"     // the token was revoked
	whyRole        = "role"        // the identity has no role
	whyUnavailable = "unavailable" // the key server or the database is unavailable
)

// kinds are the kinds of refusals of users whom a proxy or an issuer has named already. Proxies answer
// ErrUnidentified with a sign-in, so that these users would sign in for ever.
var kinds = map[string]error{
	whyClaims: ErrRefused, whyName: ErrRefused, whyGroups: ErrRefused, whyRole: ErrNoRole,
	whyIssuer: ErrRefused, whyAudience: ErrRefused, whyFuture: ErrRefused, whyOutlived: ErrRefused,
	whyUnavailable: event.ErrBusy,
}

// kindOf returns the kind of refusals for a reason: ErrUnidentified unless it is in kinds.
func kindOf(why string) error { return cmp.Or(kinds[why], ErrUnidentified) }

// refusalPause is the least time between two log lines about refusals for one reason, so that
// repeated requests cannot fill the disk; unreadPause is that between two about unread headers.
const (
	refusalPause = time.Second
	unreadPause  = time.Minute
)

// refusalLog is the time of the last log line, by reason.
type refusalLog struct {
	mu   sync.Mutex
	last map[string]lastRefusal
}

type lastRefusal struct {
	at      time.Time
	leftOut int // lines left out since
}

// due reports whether to log a line, and how many were left out since the last one.
func (g *refusalLog) due(why string, now time.Time, pause time.Duration) (leftOut int, due bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, known := g.last[why]
	if since := now.Sub(last.at); known && since >= 0 && since < pause {
		last.leftOut++
		g.last[why] = last
		return 0, false
	}
	if g.last == nil {
		g.last = map[string]lastRefusal{}
	}
	g.last[why] = lastRefusal{at: now}
	return last.leftOut, true
}

// recordRefusal counts and logs a refusal.
func (g *Gate) recordRefusal(r *http.Request, denied *denial) {
	if g.config.Refused != nil {
		g.config.Refused(denied.why)
	}
	leftOut, due := g.grumbles.due(denied.why, g.config.Now(), refusalPause)
	if !due {
		return
	}
	about := []any{"why", denied.why, "detail", denied.refusal.Detail, "peer", peerOf(r).String(), "method", r.Method, "path", r.URL.Path, operator.RequestIDs(r.Context()), "left_out", leftOut}
	if denied.cause != nil {
		about = append(about, "err", denied.cause)
	}
	g.config.Logger.Warn("request refused", about...)
}

// warnOfUnread logs identity headers that no proxy is trusted to set and that nothing reads: users
// may have been signed in for nothing, or a client forges names. An assertion beside them is read
// instead; KindLocal and KindProxyHeader refuse the request.
func (g *Gate) warnOfUnread(r *http.Request) {
	if !slices.Contains([]Kind{KindNone, KindJWT, KindToken}, g.config.Kind) || g.config.Kind == KindJWT && r.Header.Get(g.config.Header) != "" {
		return
	}
	names := slices.DeleteFunc(g.IdentityHeaders(r.Header), func(name string) bool { return g.watched[fold(name)] != "" })
	if len(names) == 0 || g.Trusts(r) {
		return
	}
	if leftOut, due := g.grumbles.due("unread", g.config.Now(), unreadPause); due {
		g.config.Logger.Warn("identity headers arrived and are not read: let the proxy empty them, or set --auth and --trusted-proxy to read them", "headers", names,
			"peer", peerOf(r).String(), "method", r.Method, "path", r.URL.Path, operator.RequestIDs(r.Context()), "left_out", leftOut)
	}
}
