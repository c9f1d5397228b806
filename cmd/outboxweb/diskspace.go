package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
)

const (
	roomPause  = time.Second // between attempts to open databases on a full disk
	roomRemind = time.Minute // between log lines about it
)

// openWhenDiskHasSpace is openBoth for a server: while the disk is full, it waits until ctx ends.
func (a *app) openWhenDiskHasSpace(ctx context.Context, o store.Options, listener net.Listener, t *tls.Config) (*engine.Engine, *projection.Set, error) {
	st, set, err := a.openBoth(ctx, o)
	if !errors.Is(err, event.ErrFull) {
		return st, set, err
	}
	defer refuse(listener, t)()
	pause := time.Tick(roomPause)
	for said := (time.Time{}); errors.Is(err, event.ErrFull); st, set, err = a.openBoth(ctx, o) {
		if time.Since(said) >= roomRemind {
			a.logger().Error("the databases cannot be opened on a full disk; retrying every second", "error", err)
			said = time.Now()
		}
		select {
		case <-pause:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return st, set, err
}

// keptOpen is a listener that outlives its server.
type keptOpen struct{ net.Listener }

// Close only ends the wait for a connection.
func (l keptOpen) Close() error { return l.until(time.Now()) }

func (l keptOpen) until(deadline time.Time) error {
	if l, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok {
		return l.SetDeadline(deadline)
	}
	return nil
}

// refuse answers every request with 503 until stop is called. It keeps no connection, on which a
// client could send its next request just as stop closes it.
func refuse(listener net.Listener, t *tls.Config) (stop func()) {
	const said = `{"ready":false,"reasons":["the databases cannot be opened: their disk is full"]}` + "\n"
	s := &http.Server{TLSConfig: t, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "10")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, said)
		})}
	s.SetKeepAlivesEnabled(false)
	kept := keptOpen{listener}
	var serving sync.WaitGroup
	serving.Go(func() { _ = serveOn(s, kept) })
	return func() {
		_ = s.Shutdown(context.Background()) // ends by the server's own timeouts
		serving.Wait()
		_ = kept.until(time.Time{})
	}
}
