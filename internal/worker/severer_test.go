package worker_test

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

	"outboxweb/internal/dbtest"
)

// severer stands between the program and PostgreSQL. Once armed, it passes the
// next commit on, and cuts the connection when the server has answered instead
// of handing the answer on.
type severer struct {
	dir     string // of its socket
	server  string // path of the server's socket
	armed   atomic.Bool
	severed atomic.Int64

	running sync.WaitGroup
	mu      sync.Mutex
	open    []net.Conn
}

const socketName = ".s.PGSQL.5432"

func newSeverer(t *testing.T) *severer {
	t.Helper()
	address, err := url.Parse(dbtest.Server().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "sever")
	if err != nil {
		t.Fatal(err)
	}
	s := &severer{dir: dir, server: filepath.Join(address.Query().Get("host"), socketName)}
	listener, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	s.running.Go(func() { s.accept(listener) })
	t.Cleanup(func() {
		listener.Close()
		s.closeAll()
		s.running.Wait()
		os.RemoveAll(dir)
	})
	return s
}

// between is the pair as it is reached through the severer.
func (s *severer) between(p dbtest.Pair) dbtest.Pair {
	p.Journal, p.Projections = withParameter(p.Journal, "host", s.dir), withParameter(p.Projections, "host", s.dir)
	return p
}

func (s *severer) arm() { s.armed.Store(true) }

func (s *severer) accept(listener net.Listener) {
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

func (s *severer) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.open {
		conn.Close()
	}
}

// preparedCommit is what the driver calls a commit that travels with other
// statements, once the server knows it.
var preparedCommit = fmt.Appendf(nil, "stmtcache_%x", sha256.Sum256([]byte("commit")))[:len("stmtcache_")+48]

// commits reports whether a message ends a transaction. One that has the server
// prepare a commit does not.
func commits(message []byte) bool {
	text := []byte("commit\x00")
	return bytes.HasSuffix(message, text) || bytes.Contains(message, preparedCommit) && !bytes.Contains(message, text)
}

// passOn gives the server what the client says, up to the end of either.
func (s *severer) passOn(server, client net.Conn, cut *atomic.Bool) {
	defer server.Close()
	defer client.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if commits(buf[:n]) && s.armed.CompareAndSwap(true, false) {
			cut.Store(true)
		}
		if _, failed := server.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

// answer gives the client what the server says, until the answer that is to be
// held back is there.
func (s *severer) answer(client, server net.Conn, cut *atomic.Bool) {
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
