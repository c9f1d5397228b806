// Package auth tells who makes a request: by a proxy's signed assertion, by
// the header of a trusted proxy, or by the bearer token of a machine. Who
// somebody is is never taken from where a forwarding header says that the
// request came from: the peer is the other end of the socket.
package auth

import (
	"errors"
	"net/http"

	"outboxweb/internal/outbox"
)

// Kinds of refusals.
var (
	// ErrUnidentified is that it is not known who asks.
	ErrUnidentified = errors.New("not identified")
	// ErrNoRole is that it is known who asks, and that one has no role.
	ErrNoRole = errors.New("no role")
)

// Gate identifies requests. It is safe for concurrent use.
type Gate struct{}

// Identify tells who makes a request. Its error is an *outbox.Refusal of kind
// ErrUnidentified, ErrNoRole or outbox.ErrBusy. A nil gate lets everybody in
// as the local operator.
func (g *Gate) Identify(r *http.Request) (outbox.Identity, error) {
	if g == nil {
		return outbox.Local(), nil
	}
	return outbox.Identity{}, &outbox.Refusal{Err: ErrUnidentified, Detail: "it is not known who asks"}
}

// Trusts reports whether the other end of the request's socket is a proxy that
// may say under which prefix it offers the pages.
func (g *Gate) Trusts(r *http.Request) bool { return false }
