package main

import (
	"errors"

	"outboxweb/internal/outbox"
	"outboxweb/internal/redact"
)

// redactFlags are the flags of serve that say what is hidden.
type redactFlags struct {
	RedactKey    []string `placeholder:"NAME" sep:"none" help:"A further name under which secrets stand, in words such as card number; it counts in any case and spelling. Repeatable."`
	RedactValue  []string `placeholder:"REGEXP" sep:"none" help:"A regular expression (RE2) of further secrets. Repeatable."`
	HidePayloads bool     `help:"Show no payloads, metadata, tags and row values at all; an admin can reveal those of one event."`
}

// redactor makes what hides secrets; a pattern that is none is a mistake in the
// flag.
func (f redactFlags) redactor() (*redact.Redactor, error) {
	r, err := redact.New(redact.Config{Keys: f.RedactKey, Values: f.RedactValue, HidePayloads: f.HidePayloads})
	if err == nil {
		return r, nil
	}
	flag := "--redact-key"
	if refusal, ok := errors.AsType[*outbox.Refusal](err); ok {
		flag = "--" + refusal.Field
	}
	return nil, asUsage(flag, err)
}
