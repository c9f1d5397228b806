package alerts_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// mailServer is a small SMTP server: it takes everything, unless its refusal is set. With a
// certificate it speaks TLS, from the start or after STARTTLS, and then wants a password.
type mailServer struct {
	at      string
	tls     *tls.Config
	atOnce  bool   // TLS from the start
	account string // name and password, as AUTH PLAIN has them
	mu      sync.Mutex
	refusal string
	got     []string // commands and texts
}

func newMailServer(t *testing.T, s *mailServer) *mailServer {
	s.at = must.Serve(t, s.serve)
	return s
}

func (s *mailServer) serve(conn net.Conn) {
	safe := s.atOnce
	if safe {
		conn = tls.Server(conn, s.tls)
	}
	say := func(text string) { _, _ = conn.Write([]byte(text + "\r\n")) }
	say("220 mail.test ready")
	lines, inText := bufio.NewScanner(conn), false
	for lines.Scan() {
		line := lines.Text()
		s.mu.Lock()
		s.got = append(s.got, line)
		refusal := s.refusal
		s.mu.Unlock()
		switch word, _, _ := strings.Cut(line, " "); {
		case inText && line != ".":
		case inText:
			inText = false
			say("250 taken")
		case word == "EHLO" && s.tls != nil && !safe:
			say("250-mail.test\r\n250 STARTTLS")
		case word == "EHLO" && safe:
			say("250-mail.test\r\n250 AUTH PLAIN")
		case word == "EHLO":
			say("250-mail.test\r\n250 8BITMIME")
		case word == "STARTTLS":
			say("220 go on")
			conn, safe = tls.Server(conn, s.tls), true
			lines = bufio.NewScanner(conn)
		case word == "AUTH" && line != "AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte(s.account)):
			say("535 wrong password")
		case word == "AUTH":
			say("235 welcome")
		case word == "RCPT" && refusal != "":
			say(refusal)
		case word == "DATA":
			inText = true
			say("354 go on")
		case word == "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func TestReceiver_sendsMail(t *testing.T) {
	t.Parallel()
	s := newMailServer(t, &mailServer{})
	config := `{receivers: {mail: {url: "smtp://` + s.at + `", from: "Ops <ops@a.test>", to: [one@b.test, two@b.test], ALLOW timeout: 5s}}, to: [mail]}`
	f := open(t, strings.Replace(config, "ALLOW", "allow_private: true,", 1))
	test := func(taken bool, says string) {
		d, err := f.Test(f.Ctx, storetest.Ana(""), "mail")
		must.Need(t, err == nil && d.OK == taken && strings.Contains(d.Error, says), "%+v, %v", d, err)
	}
	test(true, "")
	s.mu.Lock()
	got := strings.Join(s.got, "\n")
	s.refusal = "550 no such user"
	s.mu.Unlock()
	for _, want := range []string{"MAIL FROM:<ops@a.test>", "RCPT TO:<one@b.test>", "RCPT TO:<two@b.test>", "Subject: [outboxweb] Test message, sent by ana", "To: one@b.test, two@b.test",
		"Auto-Submitted: auto-generated", "Message-ID: <test-", "https://ops.example/alerts"} {
		must.Hold(t, strings.Contains(got, want), "%q is missing in\n%s", want, got)
	}
	test(false, `550 "no such user"`)
	f = open(t, strings.Replace(config, "ALLOW", "", 1))
	test(false, "not a public address")
	settings := must.Get(parse(t, strings.Replace(strings.Replace(config, "ALLOW", "allow_private: true,", 1), "smtp://", "smtp://me:${PASS}@", 1))).Or(t)
	r := settings.Receivers[0]
	must.Hold(t, !strings.Contains(r.Shown, "p@ss") && !strings.Contains(r.Shown, "me:"), "shows %q", r.Shown)
}

// The password goes over TLS alone, from the start or after STARTTLS, to a server that has a certificate for its name.
func TestReceiver_sendsMailOverTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must.OK(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}), 0o600))
	trusted := `, ca_file: "` + ca + `"`
	for _, c := range []struct {
		name, url, more, account string
		want                     string // in the error; empty if it is taken
		log                      string // the commands up to the message, without names
	}{
		{"STARTTLS", "smtp://me:${PASS}@", trusted, "\x00me\x00p@ss word", "", "EHLO STARTTLS EHLO AUTH MAIL RCPT DATA"},
		{"TLS from the start", "smtps://me:${PASS}@", trusted, "\x00me\x00p@ss word", "", "EHLO AUTH MAIL RCPT DATA"},
		{"no account", "smtps://", trusted, "", "", "EHLO MAIL RCPT DATA"},
		{"a wrong password", "smtps://me:${PASS}@", trusted, "\x00me\x00other", `535 "wrong password"`, "EHLO AUTH"},
		{"STARTTLS with an unknown certificate", "smtp://me:${PASS}@", "", "", "certificate", "EHLO STARTTLS"},
		{"an unknown certificate", "smtps://me:${PASS}@", "", "", "certificate", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newMailServer(t, &mailServer{tls: certified.TLS, atOnce: strings.HasPrefix(c.url, "smtps"), account: c.account})
			f := open(t, `{receivers: {mail: {url: "`+c.url+s.at+`", from: ops@a.test, to: [one@b.test], allow_private: true, timeout: 5s`+c.more+`}}, to: [mail]}`)
			d, err := f.Test(f.Ctx, storetest.Ana(""), "mail")
			must.Hold(t, err == nil && d.OK == (c.want == "") && strings.Contains(d.Error, c.want) && !strings.Contains(d.Error, "p@ss"), "%+v, %v", d, err)
			s.mu.Lock()
			defer s.mu.Unlock()
			var log []string
			for _, line := range s.got {
				word, _, _ := strings.Cut(line, " ")
				if log = append(log, word); word == "DATA" {
					break
				}
			}
			got := strings.Join(log, " ")
			must.Hold(t, strings.HasPrefix(got, c.log) && (c.want == "" || !strings.Contains(got, "MAIL")) && (c.want != "certificate" || !strings.Contains(got, "AUTH")), "the server was told %q, want %q", got, c.log)
		})
	}
}

// A text of any origin makes no markup, no link and no mention in a chat, and no header of its own.
func TestReceiver_escapesTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := alerts.AlertMessage{AlertNote: alerts.AlertNote{ID: "m-1", Kind: alerts.AlertStarted, Title: "<!channel> @here *x*\nX: y", Urgent: true}, AlertError: alerts.AlertError{Error: "```<https://evil.test|click>", Build: "v1"}, ConsoleURL: "https://ops.example/rows"}
	settings, err := parse(t, `{to: ["slack+`+w.URL+`", "ntfy+`+w.URL+`"], rules: {}}`)
	must.Need(t, err != nil, "a private address without allow_private")
	settings = must.Get(parse(t, `{receivers: {a: {url: "slack+`+w.URL+`/x", allow_private: true}, b: {url: "ntfy+`+w.URL+`/x", allow_private: true}}, to: [a, b]}`)).Or(t)
	for _, r := range settings.Receivers {
		must.OK(t, r.Send(context.Background(), m, "v1", storetest.Began))
	}
	type mark struct{ Type, Text string }
	var chat struct {
		Text   string
		Blocks []struct {
			Type   string
			Text   mark
			Fields []mark
		}
	}
	must.OK(t, json.Unmarshal([]byte(w.bodies[0]), &chat))
	must.Need(t, len(chat.Blocks) == 1, "the chat gets %s", w.bodies[0])
	for _, text := range []string{chat.Text, chat.Blocks[0].Text.Text} {
		for _, bad := range []string{"<!channel>", "@here", "<https://evil", `\n` + "```" + "```"} {
			must.Hold(t, !strings.Contains(text, bad), "the chat gets %q in %s", bad, text)
		}
	}
	b := chat.Blocks[0]
	must.Hold(t, strings.HasPrefix(b.Text.Text, "🚨 *<https://ops.example/rows|&lt;!channel&gt;") && len(b.Fields) == 1 && b.Fields[0].Text == "*Build*\nv1" && b.Type == "section", "the block is %+v", b)
	h := w.heads[1]
	must.Hold(t, h.Get("X") == "" && h.Get("Title") == "<!channel> @here *x* X: y" && h.Get("Priority") == "urgent" && h.Get("Click") == m.ConsoleURL, "headers %v", h)
}

// trickling accepts connections, writes a text, and goes on with another until the other side leaves.
func trickling(t *testing.T, text, on string) string {
	return must.Serve(t, func(conn net.Conn) {
		if strings.HasPrefix(text, "HTTP/") { // an answer to nothing ends the connection before the request
			_, _ = conn.Read(make([]byte, 1))
		}
		_, err := fmt.Fprint(conn, text)
		trickle := time.NewTicker(10 * time.Millisecond)
		defer trickle.Stop()
		for err == nil && on != "" {
			<-trickle.C
			_, err = fmt.Fprint(conn, on)
		}
		_, _ = io.Copy(io.Discard, conn)
	})
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
				must.Hold(t, strings.HasPrefix(text, "false") && strings.Contains(text, c.says), "it ended with %q, want %q", text, c.says)
			case <-time.After(must.Patience):
				t.Fatal("it does not end")
			}
		})
	}
}
