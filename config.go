package outboxweb

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/hosts"
)

// check refuses what the command's flags refuse, and completes PublicURL.
func (c *Config) check() error {
	if err := hosts.CheckPath(c.BasePath); err != nil {
		return event.Setup("BasePath: %q %v", c.BasePath, err)
	}
	if c.PublicURL != "" {
		origin, err := hosts.Origin(c.PublicURL)
		if err != nil {
			return event.Setup("PublicURL: %v", err)
		}
		c.PublicURL = origin
	}
	var err error
	if c.FrameAncestors, err = hosts.FrameAncestors(c.FrameAncestors); err != nil {
		return event.Setup("FrameAncestors: %v", err)
	}
	for _, name := range c.Hosts {
		if err := hosts.CheckHost(name); err != nil {
			return event.Setup("Hosts: %v", err)
		}
	}
	if err := auth.CheckSignOut(c.SignOut); err != nil {
		return event.Setup("SignOut: %v", err)
	}
	for _, n := range []struct {
		field string
		value int
		most  int
	}{
		{"BatchSize", c.BatchSize, event.MaxBatch}, {"MaxAttempts", c.MaxAttempts, 0}, {"MaxPayload", c.MaxPayload, 0},
	} {
		switch {
		case n.value < 0:
			return event.Setup("%s must be 0 for the default, or more, not %d", n.field, n.value)
		case n.most > 0 && n.value > n.most:
			return event.Setup("%s must be %d or less, not %d", n.field, n.most, n.value)
		}
	}
	for _, d := range []struct {
		field        string
		value, least time.Duration
		zero         string
	}{
		{"PollInterval", c.PollInterval, event.LeastWait, "the default"},
		{"Lease", c.Lease, event.LeastLease, "the default"},
		{"EventTimeout", c.EventTimeout, event.LeastWait, "the default"},
		{"RetryBase", c.RetryBase, event.LeastWait, "the default"},
		{"RetryMax", c.RetryMax, max(c.RetryBase, event.LeastWait), "the default"},
		{"KeepHistory", c.KeepHistory, event.LeastKept, "forever"},
		{"KeepAudit", c.KeepAudit, event.LeastKept, "forever"},
	} {
		if d.value != 0 && d.value < d.least {
			return event.Setup("%s must be %s or more, or 0 for %s, not %s", d.field, d.least, d.zero, d.value)
		}
	}
	return nil
}

// executable names the running program by a hash of its file, so that another build has another name;
// "embedded" if the file cannot be read.
var executable = sync.OnceValue(func() string {
	const unknown = "embedded"
	name, err := os.Executable()
	if err != nil {
		return unknown
	}
	f, err := os.Open(name)
	if err != nil {
		return unknown
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return unknown
	}
	return event.ShortHash(hex.EncodeToString(hash.Sum(nil)))
})
