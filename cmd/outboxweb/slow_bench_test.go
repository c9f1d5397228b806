package main

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

var (
	benchSlow      = flag.Int("bench.slow", 500, "slow connections of BenchmarkSlow")
	benchSlowTurns = flag.Int("bench.slowturns", 3, "turns of BenchmarkSlow, each five seconds without slow connections and five with them")
)

const (
	slowTurn    = 5 * time.Second
	slowReaders = 4
)

// askedBeside are the pages that ordinary clients request in BenchmarkSlow.
var askedBeside = []string{"/", "/rows", "/rows/c-00001/1", "/campaigns/c-00001", "/api/v1/summary", "/api/v1/rows", "/api/v1/campaigns/c-00001"}

// slowKinds are the kinds of slow clients: what is sent on a connection, and what happens there
// afterwards, until it fails. Each is restarted when the server has cut it off.
var slowKinds = []struct {
	says string
	then func(context.Context, *net.TCPConn) error
}{
	{"GET /rows HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", sendSlowly},
	{"POST /api/v1/campaigns/c-00001/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{\"reason\":\"", sendSlowly},
	{"GET /rows?limit=200 HTTP/1.1\r\nHost: localhost\r\n\r\n", takeSlowly},
	{"GET /export/rows?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n", takeSlowly},
	{"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", stayIdle},
}

// BenchmarkSlow measures what slow connections cost others: response times of ordinary clients,
// which request one page after another without a pause, with and without slow ones, in turns, and
// how much the server grows.
func BenchmarkSlow(b *testing.B) {
	dir := b.TempDir()
	must.OK(b, deepQueueIn(b, dir, *benchRows, *benchCampaigns).Close())
	s := serve(b, "--worker=false", "--journal-db", "sqlite:"+filepath.Join(dir, "journal.db"), "--projections-db", "sqlite:"+filepath.Join(dir, "projections.db"))
	var alone, beside []time.Duration
	askFor(b, s.url, time.Second) // one-time reads are done
	before := residentMB(b, s.cmd.Process.Pid)
	for range *benchSlowTurns {
		alone = append(alone, askFor(b, s.url, slowTurn)...)
		ctx, end := context.WithCancel(b.Context())
		open := openSlow(ctx, b, strings.TrimPrefix(s.url, "http://"))
		beside = append(beside, askFor(b, s.url, slowTurn)...)
		b.ReportMetric(float64(open.now.Load()), "open-slow")
		b.ReportMetric(residentMB(b, s.cmd.Process.Pid)-before, "grown-MB")
		end()
		open.all.Wait()
	}
	for name, times := range map[string][]time.Duration{"alone": alone, "beside": beside} {
		b.ReportMetric(p99(times), name+"-p99-ms")
		b.ReportMetric(p50(times), name+"-p50-ms")
		b.ReportMetric(float64(len(times))/(slowTurn.Seconds()*float64(*benchSlowTurns)), name+"-pages/s")
	}
}

// askFor has ordinary clients request pages for some time, and returns the duration of each answer.
func askFor(b *testing.B, url string, d time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var clients sync.WaitGroup
	times := make([][]time.Duration, slowReaders)
	for i := range times {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := i; ctx.Err() == nil; n++ {
				times[i] = append(times[i], openPage(b, client, url+askedBeside[n%len(askedBeside)]))
			}
		})
	}
	clients.Wait()
	return slices.Concat(times...)
}

// slowConnections are the slow connections of a turn.
type slowConnections struct {
	now atomic.Int64 // how many are open
	all sync.WaitGroup
}

// openSlow opens slow connections, until ctx ends. It returns once all of them
// have been opened.
func openSlow(ctx context.Context, b *testing.B, address string) *slowConnections {
	open := new(slowConnections)
	var opened sync.WaitGroup
	for i := range *benchSlow {
		opened.Add(1)
		kind := slowKinds[i%len(slowKinds)]
		open.all.Go(func() {
			first := sync.OnceFunc(opened.Done)
			defer first()
			for ctx.Err() == nil {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err == nil {
					conn.(*net.TCPConn).SetReadBuffer(2048)
					_, err = io.WriteString(conn, kind.says)
				}
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				open.now.Add(1)
				first()
				_ = kind.then(ctx, conn.(*net.TCPConn)) // the server has cut it off, or the turn has ended
				open.now.Add(-1)
				conn.Close()
			}
		})
	}
	opened.Wait()
	return open
}

// slowPause is how long a slow client rests after each byte.
const slowPause = 200 * time.Millisecond

func sendSlowly(ctx context.Context, conn *net.TCPConn) error {
	return slowly(ctx, func() error {
		_, err := conn.Write([]byte("x"))
		return err
	})
}

func takeSlowly(ctx context.Context, conn *net.TCPConn) error {
	taken := make([]byte, 1)
	return slowly(ctx, func() error {
		_, err := conn.Read(taken)
		return err
	})
}

func stayIdle(ctx context.Context, conn *net.TCPConn) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_, err := io.Copy(io.Discard, conn)
	return err
}

func slowly(ctx context.Context, step func() error) error {
	rest := time.NewTicker(slowPause)
	defer rest.Stop()
	for {
		if err := step(); err != nil {
			return err
		}
		select {
		case <-rest.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
