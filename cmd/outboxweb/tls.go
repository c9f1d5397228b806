package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// certificateLook is the minimum interval between checks of a certificate's files, which happen at
// handshakes.
const certificateLook = 2 * time.Second

// certificate is a certificate and its key, reloaded when their files change. It is safe for
// concurrent use.
type certificate struct {
	cert, key string // files
	log       *slog.Logger
	now       func() time.Time

	mu     sync.Mutex
	pair   *tls.Certificate
	seen   [2]os.FileInfo // the files at the last read, whether or not they were valid
	looked time.Time
}

// readCertificate reads both files. Its error names the file at fault.
func readCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log, now: time.Now}
	c.seen = c.stat()
	pair, err := c.read()
	if err != nil {
		return nil, usagef("%v", err)
	}
	c.pair, c.looked = pair, c.now()
	return c, nil
}

// read loads the key pair from the files.
func (c *certificate) read() (*tls.Certificate, error) {
	cert, err := os.ReadFile(c.cert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: cannot read %s: %w", c.cert, outbox.Cause(err))
	}
	key, err := os.ReadFile(c.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: cannot read %s: %w", c.key, outbox.Cause(err))
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s and --tls-key %s are not a certificate and its key: %w", c.cert, c.key, err)
	}
	return &pair, nil
}

// config returns TLS 1.2 or later with the current key pair. net/http adds HTTP/2.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.current(), nil
	}}
}

// current returns the key pair of the files, or the last valid pair if they are invalid. That is
// logged once for each change of the files.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.looked) < certificateLook {
		return c.pair
	}
	c.looked = now
	files := c.stat()
	if unchanged(c.seen[0], files[0]) && unchanged(c.seen[1], files[1]) {
		return c.pair
	}
	c.seen = files
	pair, err := c.read()
	if err != nil {
		c.log.Error("the certificate has changed and cannot be used; the previous one stays in use", "err", err)
		return c.pair
	}
	c.log.Info("the certificate has changed and is in use", "file", c.cert, "until", pair.Leaf.NotAfter)
	c.pair = pair
	return c.pair
}

// stat returns the state of both files; nil for a file that cannot be read.
func (c *certificate) stat() (files [2]os.FileInfo) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			files[i] = info
		}
	}
	return files
}

// unchanged reports whether a file is still the same. A file renamed into place may have an older
// time.
func unchanged(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
