package main

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func (c *serveCmd) checkKept() error {
	switch tooShort := func(d daysFlag) bool { return d != 0 && time.Duration(d) < outbox.LeastKept }; {
	case tooShort(c.KeepAudit):
		return usagef("--keep-audit must be 24h or more, or 0 to keep audit records forever")
	case tooShort(c.KeepHistory):
		return usagef("--keep-history must be 24h or more, or 0 to keep the history of events forever")
	}
	return nil
}
