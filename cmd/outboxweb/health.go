package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// healthCmd probes a running server. --listen and --tls-cert have the variables and the keys of the
// configuration file of serve, so that a probe beside the server needs no flags.
type healthCmd struct {
	Live    bool          `help:"Ask whether the process answers (/healthz), not whether it is ready to work (/readyz)."`
	URL     string        `name:"url" placeholder:"URL" help:"The console's URL, such as https://ops.example/outbox; without it, the address of --listen on this machine."`
	Listen  string        `default:"127.0.0.1:8080" placeholder:"PLACE" help:"Where the server listens: HOST:PORT or unix:PATH."`
	TLSCert string        `name:"tls-cert" placeholder:"FILE" help:"The server's certificate: ask over HTTPS. It is not verified at the address of --listen, which is this machine's."`
	Timeout time.Duration `default:"3s" help:"How long to wait for the answer."`
}

// Run asks the server and prints one sentence.
func (c *healthCmd) Run(ctx context.Context, a *app) error {
	if c.Timeout <= 0 {
		return usagef("--timeout must be more than 0")
	}
	base, transport, err := c.server()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	path, well := "/readyz", "ready"
	if c.Live {
		path, well = "/healthz", "alive"
	}
	at := strings.TrimSuffix(base, "/") + path
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := probe(ctx, transport, at); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", c.Timeout)
		}
		return fmt.Errorf("not %s: %s: %w", well, at, err)
	}
	fmt.Fprintf(a.out, "%s: %s answered 200\n", well, at)
	return nil
}

// server returns the URL below which the server answers, and the way to it.
func (c *healthCmd) server() (base string, transport *http.Transport, err error) {
	transport = &http.Transport{}
	if c.URL != "" {
		at, err := url.Parse(c.URL)
		if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.RawQuery != "" || at.Fragment != "" {
			return "", nil, usagef("--url: %q is not an http or https URL of a console, such as https://ops.example/outbox", withoutPassword(c.URL))
		}
		return c.URL, transport, nil
	}
	if path, unix := strings.CutPrefix(c.Listen, unixPrefix); unix {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return "http://localhost", transport, nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "0" || c.Listen == systemd {
		return "", nil, usagef("--listen: %q does not say where the server answers; give --url, HOST:PORT or unix:PATH", c.Listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = map[bool]string{true: "::1", false: "127.0.0.1"}[ip != nil && ip.To4() == nil]
	}
	scheme := "http://"
	if c.TLSCert != "" {
		scheme, transport.TLSClientConfig = "https://", &tls.Config{InsecureSkipVerify: true}
	}
	return scheme + net.JoinHostPort(host, port), transport, nil
}

// longestReadiness bounds what is read of an answer.
const longestReadiness = 64 << 10

// probe requires the answer 200. Its error completes a sentence that names the URL.
func probe(ctx context.Context, through http.RoundTripper, at string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	answer, err := through.RoundTrip(r)
	if err != nil {
		return event.Cause(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	body := outbound.ReadAnswer(ctx, answer, outbound.LongestAnswer, longestReadiness) // what arrived may name the reasons
	var not struct{ Reasons []string }
	if json.Unmarshal(body, &not) == nil && len(not.Reasons) > 0 {
		return errors.New(strings.Join(not.Reasons, "; "))
	}
	return fmt.Errorf("the answer is %s", answer.Status)
}
