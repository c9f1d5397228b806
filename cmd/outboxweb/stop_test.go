package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/store"
)

// A publisher hangs in a write to a log that nobody reads; the process ends nevertheless, and names it.
func TestServer_endsThoughAPartOfItDoesNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opened := must.Get(store.Open(t.Context(), store.Options{Journal: "sqlite:" + filepath.Join(dir, "journal.db"), Projections: "sqlite:" + filepath.Join(dir, "projections.db")})).Or(t)
	e := engine.Wire(opened)
	set := must.Get(projection.Load("sqlite", "builtin:campaigns")).Or(t)
	must.OK(t, engine.Install(t.Context(), e.Store, set))
	sub := must.Get(destination.Custom(destination.Subscription{SubscriptionName: outbox.SubscriptionName{Topic: "all", Publisher: "p"}, Match: outbox.Match{EventTypes: []string{"*"}}},
		destination.Functions{Deliver: func(context.Context, []*destination.Event) (int, error) { return 0, errors.New("no quota") }}, destination.Settings{})).Or(t)
	must.Get(e.Append(t.Context(), store.Append{Events: []outbox.Event{{CampaignID: "c", EventType: "x", Payload: []byte("{}")}}})).Or(t)
	unread, stuck := io.Pipe()
	p := engine.New(engine.Config{Engine: e, Set: set, Metrics: engine.NewMetrics(e, "v", ""), Logger: slog.New(slog.NewTextHandler(stuck, nil)), Version: "v", Subscriptions: []destination.Subscription{sub}, Alerts: alerts.New(e.Store, alerts.Options{})})
	var log bytes.Buffer
	codes := make(chan int, 1)
	s := &server{process: p, http: &http.Server{}, log: slog.New(slog.NewTextHandler(&log, nil)), limit: 50 * time.Millisecond, exit: func(code int) { codes <- code }}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, listener) }()
	if _, err := unread.Read(make([]byte, 1)); err != nil { // it has begun to write
		t.Fatal(err)
	}
	stop()
	select {
	case code := <-codes:
		if code != exitFailed {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	go func() { _, _ = io.Copy(io.Discard, unread) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "the process ends though not all of it has") || !strings.Contains(text, "running=publishers") {
		t.Errorf("the log says\n%s", text)
	}
}
