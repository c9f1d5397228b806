package main

import (
	"errors"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// redactFlags configure what serve redacts.
type redactFlags struct {
	RedactKey    []string `placeholder:"NAME" sep:"none" help:"An additional key whose values are secrets, in words such as card number; matched in any case and spelling. Repeatable."`
	RedactValue  []string `placeholder:"REGEXP" sep:"none" help:"An additional regular expression (RE2) that matches secrets. Repeatable."`
	HidePayloads bool     `help:"Hide all payloads, metadata, tags and row values; an admin can reveal one event at a time."`
}

// redactor returns the redactor of the flags; an invalid pattern is wrong usage of the flag.
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
