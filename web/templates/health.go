package templates

import "github.com/outboxweb/outboxweb/internal/outbox"

func count(n int64, one, many string) string { return outbox.Count(n, one, many) }

func sentence(s string) string { return outbox.Sentence(s) }
