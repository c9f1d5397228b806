package alerts

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/url"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbound"
)

// mail sends a message over SMTP: with TLS from the start for smtps://, else with STARTTLS. A server
// without STARTTLS is used only with allow_private, and without a password.
func (r Receiver) mail(ctx context.Context, m AlertMessage, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	client, err := r.dial(ctx)
	if err != nil {
		return outbound.DestinationError("no connection to the mail server: %w", err)
	}
	defer client.Close()
	if err := r.deliver(client, letter(r, m, now)); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("not accepted within %v: %w", r.timeout, err)
		}
		return outbound.DestinationError("the mail server: %w", err)
	}
	return nil
}

// dial connects and greets. The connection is closed when ctx ends.
func (r Receiver) dial(ctx context.Context) (*smtp.Client, error) {
	at, err := url.Parse("x://" + r.url.Authority)
	if err != nil {
		return nil, errors.New("the address is not HOST:PORT")
	}
	host, port := at.Hostname(), at.Port()
	if port == "" {
		port = map[string]string{"smtp": "587", "smtps": "465"}[r.url.Scheme]
	}
	config, err := outbound.TLSConfig("receiver "+r.Name, r.http.CAFile)
	if err != nil {
		return nil, err
	}
	config.ServerName = host
	conn, err := outbound.Dialer(r.timeout, r.http.AllowPrivate).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	raw := conn
	context.AfterFunc(ctx, func() { raw.Close() })
	if r.url.Scheme == "smtps" {
		conn = tls.Client(conn, config)
	}
	client, err := smtp.NewClient(conn, host)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := r.secure(client, config); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// secure begins TLS and authenticates.
func (r Receiver) secure(client *smtp.Client, config *tls.Config) error {
	offered, _ := client.Extension("STARTTLS")
	switch {
	case r.url.Scheme == "smtps":
	case offered:
		if err := client.StartTLS(config); err != nil {
			return fmt.Errorf("STARTTLS: %w", err)
		}
	case !r.http.AllowPrivate:
		return errors.New("it offers no STARTTLS; use smtps://, or allow_private: true for a server in your own network")
	}
	if !r.url.HasUser {
		return nil
	}
	name, password, _ := strings.Cut(r.url.User, ":")
	user, err := url.PathUnescape(name)
	secret, err2 := url.PathUnescape(password)
	if err != nil || err2 != nil {
		return errors.New("the name or the password is not escaped correctly")
	}
	return client.Auth(smtp.PlainAuth("", user, secret, config.ServerName))
}

func (r Receiver) deliver(client *smtp.Client, text []byte) error {
	if err := client.Mail(r.from); err != nil {
		return err
	}
	for _, to := range r.to {
		if err := client.Rcpt(to); err != nil {
			return err
		}
	}
	w, err := client.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_ = client.Quit() // it has taken the message
	return nil
}

// letter is the message as an e-mail.
func letter(r Receiver, m AlertMessage, now time.Time) []byte {
	var b bytes.Buffer
	_, domain, _ := strings.Cut(r.from, "@")
	for _, h := range [][2]string{
		{"From", r.from}, {"To", strings.Join(r.to, ", ")}, {"Subject", mime.QEncoding.Encode("utf-8", "[outboxweb] "+oneLine(m.Title))},
		{"Date", now.UTC().Format(time.RFC1123Z)}, {"Message-ID", "<" + m.ID + "@" + domain + ">"}, {"Auto-Submitted", "auto-generated"},
		{"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"}, {"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(m.Title + "\n\n" + plainText(m, now) + "\n"))
	_ = w.Close()
	return b.Bytes()
}
