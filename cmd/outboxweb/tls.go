package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
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
	wrong  string // with the files at the last look; empty if they were valid
	looked time.Time
}

// readCertificate reads both files. Its error names the file at fault.
func readCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log, now: time.Now}
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
		return nil, fmt.Errorf("--tls-cert: cannot read %s: %w", c.cert, event.Cause(err))
	}
	key, err := os.ReadFile(c.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: cannot read %s: %w", c.key, event.Cause(err))
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

// current returns the key pair of the files, or the last valid pair if they are invalid. Each change is
// logged once, and so is what is wrong.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.looked) < certificateLook {
		return c.pair
	}
	c.looked = now
	pair, err := c.read()
	switch {
	case err != nil && err.Error() != c.wrong:
		c.wrong = err.Error()
		c.log.Error("the certificate has changed and cannot be used; the previous one stays in use", "err", err)
	case err == nil && (c.wrong != "" || !slices.EqualFunc(pair.Certificate, c.pair.Certificate, bytes.Equal)):
		c.log.Info("the certificate has changed and is in use", "file", c.cert, "until", pair.Leaf.NotAfter)
		c.pair, c.wrong = pair, ""
	}
	return c.pair
}
