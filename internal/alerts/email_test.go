package alerts_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"

	"outboxweb/internal/outbox"
	"outboxweb/internal/storetest"
)

// mailServer is a small SMTP server without TLS: it takes everything, unless its refusal is set.
type mailServer struct {
	net.Listener
	mu      sync.Mutex
	refusal string
	got     []string // commands and texts
}

func newMailServer(t *testing.T) *mailServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mailServer{Listener: l}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return s
}

func (s *mailServer) serve(conn net.Conn) {
	defer conn.Close()
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
		case word == "EHLO":
			say("250-mail.test\r\n250 8BITMIME")
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
	s := newMailServer(t)
	config := `{receivers: {mail: {url: "smtp://` + s.Addr().String() + `", from: "Ops <ops@a.test>", to: [one@b.test, two@b.test], ALLOW timeout: 5s}}, to: [mail]}`
	f := open(t, strings.Replace(config, "ALLOW", "allow_private: true,", 1))
	if d, err := f.Test(f.Ctx, storetest.Ana(""), "mail"); err != nil || !d.OK {
		t.Fatalf("%+v, %v", d, err)
	}
	s.mu.Lock()
	got := strings.Join(s.got, "\n")
	s.mu.Unlock()
	for _, want := range []string{"MAIL FROM:<ops@a.test>", "RCPT TO:<one@b.test>", "RCPT TO:<two@b.test>", "Subject: [outboxweb] Test message, sent by ana", "To: one@b.test, two@b.test",
		"Auto-Submitted: auto-generated", "Message-ID: <test-", "https://ops.example/alerts"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	s.mu.Lock()
	s.refusal = "550 no such user"
	s.mu.Unlock()
	if d, err := f.Test(f.Ctx, storetest.Ana(""), "mail"); err != nil || d.OK || !strings.Contains(d.Error, `550 "no such user"`) {
		t.Errorf("%+v, %v", d, err)
	}
	f = open(t, strings.Replace(config, "ALLOW", "", 1))
	if d, err := f.Test(f.Ctx, storetest.Ana(""), "mail"); err != nil || d.OK || !strings.Contains(d.Error, "not a public address") {
		t.Errorf("%+v, %v", d, err)
	}
	settings, err := parse(t, strings.Replace(strings.Replace(config, "ALLOW", "allow_private: true,", 1), "smtp://", "smtp://me:${PASS}@", 1))
	if err != nil {
		t.Fatal(err)
	}
	if r := settings.Receivers[0]; strings.Contains(r.Shown, "p@ss") || strings.Contains(r.Shown, "me:") {
		t.Errorf("shows %q", r.Shown)
	}
}

// A text of any origin makes no markup, no link and no mention in a chat, and no header of its own.
func TestReceiver_escapesTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := outbox.AlertMessage{AlertNote: outbox.AlertNote{ID: "m-1", Kind: outbox.AlertStarted, Title: "<!channel> @here *x*\nX: y", Urgent: true}, Error: "```<https://evil.test|click>", ConsoleURL: "https://ops.example/rows"}
	settings, err := parse(t, `{to: ["slack+`+w.URL+`", "ntfy+`+w.URL+`"], rules: {}}`)
	if err == nil {
		t.Fatal("a private address without allow_private")
	}
	settings, err = parse(t, `{receivers: {a: {url: "slack+`+w.URL+`/x", allow_private: true}, b: {url: "ntfy+`+w.URL+`/x", allow_private: true}}, to: [a, b]}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range settings.Receivers {
		if err := r.Send(context.Background(), m, "v1", storetest.Began); err != nil {
			t.Fatal(err)
		}
	}
	var chat struct{ Text string }
	if err := json.Unmarshal([]byte(w.bodies[0]), &chat); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<!channel>", "@here", "<https://evil", `\n` + "```" + "```"} {
		if strings.Contains(chat.Text, bad) {
			t.Errorf("the chat gets %q in %s", bad, chat.Text)
		}
	}
	if h := w.heads[1]; h.Get("X") != "" || h.Get("Title") != "<!channel> @here *x* X: y" || h.Get("Priority") != "urgent" || h.Get("Click") != m.ConsoleURL {
		t.Errorf("headers %v", h)
	}
}
