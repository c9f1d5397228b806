package auth

import (
	"net/http"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
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
	whyUnknown     = "unknown"     // no such token
	whyRevoked     = "revoked"     // the token was revoked
	whyRole        = "role"        // the identity has no role
	whyUnavailable = "unavailable" // the key server or the database is unavailable
)

// refusalPause is the least time between two log lines about refusals for one reason, so that
// repeated requests cannot fill the disk.
const refusalPause = time.Second

// refusalLog is the time of the last logged refusal, by reason.
type refusalLog struct {
	mu   sync.Mutex
	last map[string]lastRefusal
}

type lastRefusal struct {
	at      time.Time
	leftOut int // refusals not logged since
}

// due reports whether to log a refusal, and how many were not logged since the last one.
func (g *refusalLog) due(why string, now time.Time) (leftOut int, due bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, known := g.last[why]
	if since := now.Sub(last.at); known && since >= 0 && since < refusalPause {
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
	leftOut, due := g.grumbles.due(denied.why, g.config.Now())
	if !due {
		return
	}
	about := []any{"why", denied.why, "detail", denied.refusal.Detail, "peer", peerOf(r).String(), "method", r.Method, "path", r.URL.Path, outbox.RequestIDs(r.Context()), "left_out", leftOut}
	if denied.cause != nil {
		about = append(about, "err", denied.cause)
	}
	g.config.Logger.Warn("request refused", about...)
}
