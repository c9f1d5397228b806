package outbound_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// server answers one connection, and holds it open. ended is to be closed when the request has ended; left
// is closed when the other side has closed the connection.
func server(tb testing.TB, answer func(conn net.Conn, ended <-chan struct{})) (at string, ended chan struct{}, left <-chan struct{}) {
	tb.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(tb)
	tb.Cleanup(func() { listener.Close() })
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		answer(conn, over)
		_, _ = io.Copy(io.Discard, conn)
		close(gone)
	}()
	return listener.Addr().String(), over, gone
}

// saying reads a request without its body, answers with a text, and goes on with another until the
// request has ended.
func saying(text, on string) func(net.Conn, <-chan struct{}) {
	return func(conn net.Conn, ended <-chan struct{}) {
		lines := bufio.NewScanner(conn)
		for lines.Scan() && lines.Text() != "" {
		}
		trickle := time.NewTicker(time.Millisecond)
		defer trickle.Stop()
		for _, err := fmt.Fprint(conn, text); err == nil && on != ""; _, err = fmt.Fprint(conn, on) {
			select {
			case <-trickle.C:
			case <-ended:
				return
			}
		}
	}
}

// silent reads nothing before the request has ended.
func silent(_ net.Conn, ended <-chan struct{}) { <-ended }

// Whatever a server does, a request ends within its time, says why, and leaves no connection behind.
func TestClient_endsWhateverTheServerDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(net.Conn, <-chan struct{})
		scheme string
		says   string // empty: the request is accepted
	}{
		"101 and then nothing":       {saying("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", ""), "http", "answered 101 Switching Protocols, which is no final answer"},
		"101 and then a trickle":     {saying("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "x"), "http", "answered 101 Switching Protocols, which is no final answer"},
		"a status below 100":         {saying("HTTP/1.1 099 Odd\r\n\r\n", "x"), "http", "answered 099 Odd, which is no final answer"},
		"early hints without an end": {saying("", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), "http", "no response"},
		"a heading that trickles":    {saying("HTTP/1.1 200 OK\r\nX: ", "x"), "http", "no response within"},
		"a body that trickles":       {saying("HTTP/1.1 200 OK\r\n\r\n", "x"), "http", ""},
		"an error that trickles":     {saying("HTTP/1.1 503 Busy\r\n\r\n", "x"), "http", "answered 503 Busy"},
		"a body that does not come":  {saying("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", ""), "http", ""},
		"no answer":                  {saying("", ""), "http", "no response within"},
		"a request that is not read": {silent, "http", "no response within"},
		"no TLS handshake":           {saying("", ""), "https", "no response"},
		"a redirect to itself":       {saying("HTTP/1.1 307 Again\r\nLocation: /\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", ""), "http", "redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, over, left := server(t, c.answer)
			client := must.Get(outbound.NewClient("receiver x", c.scheme+"://"+at+"/", outbound.HTTPSettings{AllowPrivate: true}, 200*time.Millisecond, "test")).Or(t)
			defer client.Close()
			body := []byte("{}")
			if strings.Contains(name, "not read") {
				body = make([]byte, 64<<20)
			}
			ended := make(chan error, 1)
			go func() { ended <- client.Post(context.Background(), "1", "application/json", body, nil) }()
			var err error
			select {
			case err = <-ended:
			case <-time.After(must.Patience):
				t.Fatal("the request does not end")
			}
			close(over)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || outbound.Cause(err).Kind != operator.DestinationError) {
				t.Errorf("it ended with %v, want %q", err, c.says)
			}
			select {
			case <-left:
			case <-time.After(must.Patience):
				t.Error("its connection stays open")
			}
		})
	}
}
