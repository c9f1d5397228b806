// Package outbound is what requests to other systems have in common, whether they deliver events or
// alerts: the reading of their settings from the configuration file, the addresses they may reach,
// TLS, signatures, time limits, and what an answer means.
package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

const (
	largestAnswer   = 64 << 10 // maximum bytes read of an answer
	shownOfAnswer   = 500      // bytes of an answer shown in an error
	longestRetry    = time.Hour
	idleConnection  = time.Minute
	largestHeadings = 64 << 10

	// LongestAnswer is the maximum time for reading an answer.
	LongestAnswer = time.Second
)

// Error is why a request was not accepted. Other errors count as errors of the destination.
type Error struct {
	Kind operator.DeliveryErrorKind
	// RetryAfter is the minimum time until the next try, as requested by the destination; 0 if it
	// did not.
	RetryAfter time.Duration
	// Gone means that the destination asked not to be called again.
	Gone bool
	Err  error // in full, for operators
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Cause returns the *Error of an error.
func Cause(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: operator.DestinationError, Err: err}
}

// DestinationError blames the destination.
func DestinationError(format string, args ...any) *Error {
	return &Error{Kind: operator.DestinationError, Err: fmt.Errorf(format, args...)}
}

// EventError blames what was sent.
func EventError(format string, args ...any) *Error {
	return &Error{Kind: operator.EventError, Err: fmt.Errorf(format, args...)}
}

// Refusal blames neither: any event may be refused alike.
func Refusal(format string, args ...any) *Error {
	return &Error{Kind: operator.UnknownError, Err: fmt.Errorf(format, args...)}
}

// Client posts to one HTTP server. It is used by one goroutine at a time.
type Client struct {
	Now     func() time.Time
	Reading time.Duration // maximum time for reading an answer

	url      string
	settings HTTPSettings
	timeout  time.Duration
	agent    string
	client   *http.Client
}

// NewClient returns a client whose requests take at most the timeout each. owner names whose
// settings they are, for sentences.
func NewClient(owner, url string, settings HTTPSettings, timeout time.Duration, version string) (*Client, error) {
	config, err := TLSConfig(owner, settings.CAFile)
	if err != nil {
		return nil, err
	}
	return &Client{
		url: url, settings: settings, timeout: timeout, agent: "outboxweb/" + version, Now: time.Now, Reading: LongestAnswer,
		client: &http.Client{
			// No proxy: it would reach the addresses that the dialer refuses.
			Transport: &http.Transport{
				DialContext: Dialer(timeout, settings.AllowPrivate).DialContext, TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true,
				TLSHandshakeTimeout: timeout, MaxIdleConnsPerHost: 1, IdleConnTimeout: idleConnection, MaxResponseHeaderBytes: largestHeadings,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Dialer returns a dialer that connects only to internet addresses, unless private ones are allowed.
func Dialer(timeout time.Duration, allowPrivate bool) *net.Dialer {
	dialer := &net.Dialer{Timeout: timeout}
	if !allowPrivate {
		dialer.Control = refusePrivate
	}
	return dialer
}

// Close closes idle connections.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// Post sends one request with the settings' headers and a signature, if a secret is configured. id
// is the same whenever the same content is sent.
func (c *Client) Post(ctx context.Context, id, contentType string, body []byte, headers map[string]string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return DestinationError("cannot create the request: %w", withoutURL(err))
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	if err := c.head(request, id, contentType, body); err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return DestinationError("no response: %w", c.explain(withoutURL(err)))
	}
	defer func() { _ = response.Body.Close() }()
	return classify(response, ReadAnswer(ctx, response, c.Reading, largestAnswer), c.Now())
}

// ReadAnswer reads at most so many bytes of an answer, for at most so long and until ctx ends. Reading it
// to its end allows the connection to be reused. What broke off, or never ends, is returned as far as it
// came. After 101 there is none: what follows is another protocol, and does not end with the context of
// its request.
func ReadAnswer(ctx context.Context, response *http.Response, within time.Duration, most int64) []byte {
	if !final(response.StatusCode) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = response.Body.Close() })()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, most))
	return answer
}

// final reports whether a status ends its request.
func final(status int) bool { return status >= 200 }

func (c *Client) head(request *http.Request, id, contentType string, body []byte) error {
	for name, value := range c.settings.Headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", c.agent)
	if request.Header.Get("Idempotency-Key") == "" {
		// Not sent: it permits the transport to send the request again on a new connection if the
		// kept one turns out to be dead.
		request.Header["Idempotency-Key"] = nil
	}
	if len(c.settings.Signers) == 0 {
		return nil
	}
	now := c.Now()
	var signatures []string
	for _, signer := range c.settings.Signers {
		signature, err := signer.Sign(id, now, body)
		if err != nil {
			return DestinationError("the request cannot be signed: %w", err)
		}
		signatures = append(signatures, signature)
	}
	request.Header.Set(standardwebhooks.HeaderWebhookID, id)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

func (c *Client) explain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no response within %v: %w", c.timeout, err)
	}
	return err
}

// withoutURL returns err without the URL around it, which may have secrets.
func withoutURL(err error) error {
	if urlError, ok := errors.AsType[*url.Error](err); ok {
		return urlError.Err
	}
	return err
}

// classify interprets an answer.
func classify(response *http.Response, answer []byte, now time.Time) error {
	status := response.StatusCode
	text := oneLine([]byte(response.Status))
	if shown := oneLine(answer); shown != "" {
		text += ": " + shown
	}
	switch {
	case !final(status):
		return DestinationError("answered %s, which is no final answer; the server, or a proxy before it, must answer 200 or another 2xx", text)
	case status < 300:
		return nil
	case status < 400:
		return DestinationError("answered %s%s; redirects are not followed: configure the final URL", text, pointsTo(response))
	case status == http.StatusGone:
		err := DestinationError("answered %s: it does not accept events any more", text)
		err.Gone = true
		return err
	case isDestinationsFault(status):
		err := DestinationError("answered %s", text)
		err.RetryAfter = retryAfter(response.Header.Get("Retry-After"), now)
		return err
	default:
		return Refusal("answered %s", text)
	}
}

func isDestinationsFault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status > 500
}

// pointsTo is the server that a redirect leads to; its path may be secret.
func pointsTo(response *http.Response) string {
	to, err := response.Location()
	if err != nil {
		return ""
	}
	return " and points to " + oneLine([]byte(to.Scheme+"://"+to.Host))
}

// retryAfter parses seconds or a date, and is 0 if there is neither.
func retryAfter(header string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseInt(header, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		d = time.Duration(min(max(seconds, 0), int64(longestRetry/time.Second))) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		d = at.Sub(now)
	}
	return max(0, min(d, longestRetry))
}

// oneLine returns the beginning of an answer as printable text.
func oneLine(answer []byte) string {
	cut := len(answer) > shownOfAnswer
	text := strings.ToValidUTF8(string(answer[:min(len(answer), shownOfAnswer)]), "")
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }), " ")
	if cut {
		text += "…"
	}
	return text
}

// TLSConfig trusts the certificates of a file, or those of the system if none is named.
func TLSConfig(owner, caFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return config, nil
	}
	pem, err := readSmall(caFile)
	if err != nil {
		return nil, event.Setup("ca_file of %s cannot be read: %v", owner, err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, event.Setup("ca_file of %s: %s has no certificate in PEM", owner, caFile)
	}
	return config, nil
}

func readSmall(path string) ([]byte, error) {
	const most = 4 << 20
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(text) > most {
		err = errors.New("it is larger than 4 MiB")
	}
	return text, err
}
