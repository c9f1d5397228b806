package destination_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// stalled is a server that greets and then never answers. It then calls after.
func stalled(tb testing.TB, after func(net.Conn)) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	release := make(chan struct{})
	tb.Cleanup(func() {
		close(release)
		listener.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprint(conn, "INFO {\"server_id\":\"x\",\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,\"max_payload\":67108864}\r\n")
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					if strings.HasPrefix(lines.Text(), "PING") {
						fmt.Fprint(conn, "PONG\r\n")
						break
					}
				}
				after(conn)
				<-release
			}()
		}
	}()
	return listener.Addr().String()
}

func TestNATS_doesNotWaitForAServerThatReadsNothing(t *testing.T) {
	t.Parallel()
	var greeted atomic.Bool
	at := stalled(t, func(net.Conn) { greeted.Store(true) })
	events := []*destination.Event{destination.NewEvent(noisy(1, 30<<20), destination.Source("j1"))}
	for timeout := time.Second; !greeted.Load(); timeout *= 4 { // on a slow machine a short one ends before it is connected
		if timeout > 4*patience {
			t.Fatal("it does not connect")
		}
		p := open(t, "url: nats://"+at+"/scenes", "timeout: "+timeout.String())
		start := time.Now()
		n, err := p.Publish(t.Context(), events)
		if n != 0 || greeted.Load() && !errors.Is(err, context.DeadlineExceeded) || destination.Cause(err).Kind != outbox.DestinationError {
			t.Errorf("delivered %d: %v", n, err)
		}
		if took := time.Since(start); took > timeout+30*time.Second { // the library gives a write a minute
			t.Errorf("took %v with a timeout of %v", took, timeout)
		}
	}
}

// A reply may still be in flight: it must not be taken for that of the next event.
func TestNATS_leavesAServerThatDoesNotAcknowledge(t *testing.T) {
	t.Parallel()
	p := refusedInTime(t, "no acknowledgement from NATS", "url: nats://"+stalled(t, func(c net.Conn) { go func() { _, _ = io.Copy(io.Discard, c) }() })+"/scenes")
	if destination.Connected(p) {
		t.Error("the connection was kept")
	}
}
