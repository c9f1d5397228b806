package destination

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"outboxweb/internal/outbox"
)

const (
	structuredType = "application/cloudevents+json"
	batchType      = "application/cloudevents-batch+json"

	largestRequest  = 1 << 20     // bytes of a batch of more than one event
	largestAnswer   = 64 << 10    // maximum bytes read of an answer
	longestAnswer   = time.Second // maximum time for reading it
	shownOfAnswer   = 500         // bytes of an answer shown in an error
	longestRetry    = time.Hour
	idleConnection  = time.Minute
	largestHeadings = 64 << 10
)

// webhook posts events to an HTTP server.
type webhook struct {
	sub      outbox.SubscriptionName
	url      string
	settings webhookSettings
	timeout  time.Duration
	agent    string
	client   *http.Client
	now      func() time.Time
	reading  time.Duration // maximum time for reading an answer
}

func openWebhook(p Subscription, o Options) (Publisher, error) {
	config, err := tlsConfig(p.SubscriptionName, p.settings.webhook.caFile)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: p.Timeout}
	if !p.settings.webhook.allowPrivate {
		dialer.Control = refusePrivate
	}
	return &webhook{
		sub: p.SubscriptionName, url: p.URL, settings: p.settings.webhook, timeout: p.Timeout, agent: "outboxweb/" + o.Version, now: time.Now, reading: longestAnswer,
		client: &http.Client{
			// No proxy: it would reach the addresses that the dialer refuses.
			Transport: &http.Transport{
				DialContext: dialer.DialContext, TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true,
				MaxIdleConnsPerHost: 1, IdleConnTimeout: idleConnection, MaxResponseHeaderBytes: largestHeadings,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (w *webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}

func (w *webhook) Publish(ctx context.Context, events []*Event) (int, error) {
	list, badEvent := encoded(events)
	send := w.publishEach
	if w.settings.batch {
		send = w.publishBatches
	}
	delivered, err := send(ctx, events[:len(list)], list)
	if err == nil && delivered == len(list) {
		err = badEvent
	}
	return delivered, err
}

// publishEach sends one request for each event.
func (w *webhook) publishEach(ctx context.Context, events []*Event, list [][]byte) (int, error) {
	start := w.now()
	for i, e := range events {
		if i > 0 && w.now().Sub(start) > patience {
			return i, nil
		}
		var err error
		if w.settings.batch {
			err = w.postBatch(ctx, events[i:i+1], list[i:i+1])
		} else {
			err = w.post(ctx, e.ID(), structuredType, list[i])
		}
		if err != nil {
			return i, err
		}
	}
	return len(events), nil
}

// publishBatches sends as many events per request as fit. A request that is refused because of its
// events is sent again event by event, to find the one at fault.
func (w *webhook) publishBatches(ctx context.Context, events []*Event, list [][]byte) (int, error) {
	start := w.now()
	for i := 0; i < len(events); {
		if i > 0 && w.now().Sub(start) > patience {
			return i, nil
		}
		n := fitting(list[i:], largestRequest)
		err := w.postBatch(ctx, events[i:i+n], list[i:i+n])
		if n > 1 && err != nil && Cause(err).Kind == outbox.EventError {
			each, err := w.publishEach(ctx, events[i:i+n], list[i:i+n])
			return i + each, err
		}
		if err != nil {
			return i, err
		}
		i += n
	}
	return len(events), nil
}

// fitting returns how many of the list, at least one, fit into most bytes together.
func fitting(list [][]byte, most int) int {
	size := 0
	for i, b := range list {
		if size += len(b) + 1; size > most && i > 0 {
			return i
		}
	}
	return len(list)
}

func (w *webhook) postBatch(ctx context.Context, events []*Event, list [][]byte) error {
	body := append([]byte{'['}, bytes.Join(list, []byte{','})...)
	return w.post(ctx, events[0].ID()+"-"+events[len(events)-1].ID(), batchType, append(body, ']'))
}

// post sends one request. id is the same whenever the same events are sent.
func (w *webhook) post(ctx context.Context, id, contentType string, body []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return destinationError("cannot create the request: %w", withoutURL(err))
	}
	if err := w.head(request, id, contentType, body); err != nil {
		return err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return destinationError("no response: %w", w.explain(withoutURL(err)))
	}
	defer func() { _ = response.Body.Close() }()
	// Reading the answer to its end allows the connection to be reused. An answer that breaks off,
	// or never ends, still counts.
	defer time.AfterFunc(w.reading, cancel).Stop()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, largestAnswer))
	return classify(response, answer, w.now())
}

func (w *webhook) head(request *http.Request, id, contentType string, body []byte) error {
	for name, value := range w.settings.headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", w.agent)
	if request.Header.Get("Idempotency-Key") == "" {
		// Not sent: it permits the transport to send the request again on a new connection if the
		// kept one turns out to be dead.
		request.Header["Idempotency-Key"] = nil
	}
	if len(w.settings.signers) == 0 {
		return nil
	}
	id = w.sub.Topic + "." + w.sub.Publisher + "." + id
	now := w.now()
	var signatures []string
	for _, signer := range w.settings.signers {
		signature, err := signer.Sign(id, now, body)
		if err != nil {
			return destinationError("the request cannot be signed: %w", err)
		}
		signatures = append(signatures, signature)
	}
	request.Header.Set(standardwebhooks.HeaderWebhookID, id)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

// withoutURL returns err without the URL around it, which may have secrets.
func withoutURL(err error) error {
	var urlError *url.Error
	if errors.As(err, &urlError) {
		return urlError.Err
	}
	return err
}

func (w *webhook) explain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no response within %v: %w", w.timeout, err)
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
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return destinationError("answered %s%s; redirects are not followed: configure the final URL", text, pointsTo(response))
	case status == http.StatusGone:
		err := destinationError("answered %s: it does not accept events any more", text)
		err.Gone = true
		return err
	case isDestinationsFault(status):
		err := destinationError("answered %s", text)
		err.RetryAfter = retryAfter(response.Header.Get("Retry-After"), now)
		return err
	default:
		return eventError("answered %s", text)
	}
}

func isDestinationsFault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status > 500 || status < 200
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
