package alerts_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/storetest"
)

// trickling accepts connections, writes a text, and goes on with another until the other side leaves.
func trickling(t *testing.T, text, on string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, err := fmt.Fprint(conn, text)
				trickle := time.NewTicker(10 * time.Millisecond)
				defer trickle.Stop()
				for err == nil && on != "" {
					<-trickle.C
					_, err = fmt.Fprint(conn, on)
				}
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// Whatever a receiver does, a message to it ends, and says why.
func TestReceiver_messageEndsWhateverItDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ scheme, text, on, says string }{
		"a mail server that says nothing":               {"smtp", "", "", "the mail server"},
		"a mail server whose greeting trickles":         {"smtp", "220 ", "x", "the mail server"},
		"a mail server whose greeting has no last line": {"smtp", "220-a\r\n", "220-a\r\n", "the mail server"},
		"a mail server that only greets":                {"smtp", "220 a\r\n", "", "the mail server"},
		"a mail server without a TLS handshake":         {"smtps", "", "", "the mail server"},
		"a webhook that switches protocols":             {"http", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "x", "101 Switching Protocols, which is no final answer"},
		"a chat whose heading trickles":                 {"slack+http", "HTTP/1.1 200 OK\r\nX: ", "x", "no response within 200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mail := ""
			if strings.HasPrefix(c.scheme, "smtp") {
				mail = `from: "ops@a.test", to: [one@b.test], `
			}
			f := open(t, fmt.Sprintf(`{receivers: {it: {url: "%s://%s", %sallow_private: true, timeout: 200ms}}, to: [it]}`, c.scheme, trickling(t, c.text, c.on), mail))
			ended := make(chan string, 1)
			go func() {
				d, err := f.Test(f.Ctx, storetest.Ana(""), "it")
				ended <- fmt.Sprint(d.OK, d.Error, err)
			}()
			select {
			case text := <-ended:
				if !strings.HasPrefix(text, "false") || !strings.Contains(text, c.says) {
					t.Errorf("it ended with %q, want %q", text, c.says)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("it does not end")
			}
		})
	}
}
