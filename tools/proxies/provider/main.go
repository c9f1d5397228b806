// Command provider is an OpenID Connect provider with a login page, for tests. It
// listens on the address of its first argument, for the client "outboxweb" with the
// secret "secret". The name typed into the page chooses the user's groups; see groups.
// POST /rotate replaces the key; the token's lifetime is the second argument.
package main

import (
	"crypto/sha256"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/oauth2-proxy/mockoidc"
)

const page = `<!DOCTYPE html><html lang="en"><title>Provider</title><link rel="icon" href="data:,">
<form method="post"><label>Name <input name="name" autofocus></label><button>Log in</button></form></html>`

// groups are those of a user: "ops" and a number of others that do not compress, as identifiers do
// not; one with commas in its name; or none.
func groups(name string) []string {
	others, known := map[string]int{"ana": 9, "many": 150, "crowd": 399}[name]
	switch {
	case name == "club":
		return []string{"book club, ops, and friends"}
	case !known:
		return nil
	}
	all := make([]string, 0, others+1)
	for i := range others {
		all = append(all, fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)}))[:24])
	}
	return append(all, "ops")
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(address, lifetime string) error {
	ttl, err := time.ParseDuration(lifetime)
	if err != nil {
		return err
	}
	m, err := mockoidc.NewServer(nil)
	if err != nil {
		return err
	}
	m.ClientID, m.ClientSecret, m.AccessTTL = "outboxweb", "secret", ttl
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var one sync.Mutex // a user is queued for the request that follows, and keys are replaced between requests
	err = m.AddMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			one.Lock()
			defer one.Unlock()
			switch {
			case r.URL.Path != mockoidc.AuthorizationEndpoint:
			case r.Method == http.MethodPost:
				name := r.PostFormValue("name")
				m.QueueUser(&mockoidc.MockUser{Subject: name, Email: name + "@ops.example", EmailVerified: true, PreferredUsername: name, Groups: groups(name)})
			default:
				fmt.Fprint(w, page)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	if err != nil {
		return err
	}
	if err := m.Start(listener, nil); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", m.Server.Handler)
	mux.HandleFunc("POST /rotate", func(w http.ResponseWriter, r *http.Request) {
		pair, err := mockoidc.RandomKeypair(2048)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		one.Lock()
		defer one.Unlock()
		m.Keypair = pair
	})
	m.Server.Handler = mux
	select {}
}
