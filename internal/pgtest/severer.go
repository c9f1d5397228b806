package pgtest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// Severer is a proxy in front of a Server. Once armed, it forwards the next commit, or the nth of
// the messages to the server, and cuts the connection instead of forwarding the server's answer. It
// is safe for concurrent use.
type Severer struct {
	dir     string // of its socket
	server  string // path of the server's socket
	armed   atomic.Bool
	left    atomic.Int64 // messages up to the one whose answer is dropped, if positive
	severed atomic.Int64

	running sync.WaitGroup
	mu      sync.Mutex
	open    []net.Conn
}

const socketName = ".s.PGSQL.5432"

// Severer starts a Severer in front of the server, and stops it when the test
// ends.
func (s *Server) Severer(tb testing.TB) *Severer {
	tb.Helper()
	// The path of a socket must be short.
	dir := must.Get(os.MkdirTemp("", "sever")).Or(tb)
	between := &Severer{dir: dir, server: filepath.Join(s.janitor.dir, socketName)}
	listener := must.Get(net.Listen("unix", filepath.Join(dir, socketName))).Or(tb)
	between.running.Go(func() { between.accept(listener) })
	tb.Cleanup(func() {
		listener.Close()
		between.closeAll()
		between.running.Wait()
		os.RemoveAll(dir)
	})
	return between
}

// Through rewrites a URL of the server to go through the severer.
func (s *Severer) Through(direct string) string { return ledBy(direct, "host", s.dir) }

// ledBy is a URL of the server with other parameters, names and values in turn.
func ledBy(direct string, parameters ...string) string {
	address, err := url.Parse(direct)
	if err != nil {
		panic(err)
	}
	query := address.Query()
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	address.RawQuery = query.Encode()
	return address.String()
}

// Arm makes the next commit lose its answer.
func (s *Severer) Arm() { s.armed.Store(true) }

// CutAt makes the nth message from now lose its answer; 0 means none. It reports whether the message
// that it was called for before came.
func (s *Severer) CutAt(n int64) (came bool) { return s.left.Swap(n) <= 0 }

// Severed is the number of messages whose answer was dropped.
func (s *Severer) Severed() int64 { return s.severed.Load() }

func (s *Severer) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", s.server)
		if err != nil {
			client.Close()
			continue
		}
		s.mu.Lock()
		s.open = append(s.open, client, server)
		s.mu.Unlock()
		var cut atomic.Bool
		s.running.Go(func() { s.passOn(server, client, &cut) })
		s.running.Go(func() { s.answer(client, server, &cut) })
	}
}

func (s *Severer) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.open {
		conn.Close()
	}
}

// preparedCommit is the driver's name of a prepared commit, which is sent with other
// statements.
var preparedCommit = fmt.Appendf(nil, "stmtcache_%x", sha256.Sum256([]byte("commit")))[:len("stmtcache_")+48]

// commits reports whether a message ends a transaction. One that only prepares a commit does
// not.
func commits(message []byte) bool {
	text := []byte("commit\x00")
	return bytes.HasSuffix(message, text) || bytes.Contains(message, preparedCommit) && !bytes.Contains(message, text)
}

// passOn forwards the client's data to the server until either closes.
func (s *Severer) passOn(server, client net.Conn, cut *atomic.Bool) {
	defer server.Close()
	defer client.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if n > 0 && s.left.Add(-1) == 0 || commits(buf[:n]) && s.armed.CompareAndSwap(true, false) {
			cut.Store(true)
		}
		if _, failed := server.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

// answer forwards the server's data to the client until the answer that must be dropped.
func (s *Severer) answer(client, server net.Conn, cut *atomic.Bool) {
	defer server.Close()
	defer client.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if n > 0 && cut.Load() {
			s.severed.Add(1)
			return
		}
		if _, failed := client.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}
