package ui

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/request"
)

// Twins are the shell equivalents of an action: a curl command and, if there is one, the program's
// own command. Both can be pasted into a POSIX shell.
type Twins struct {
	Curl string
	CLI  string // empty if there is no such command, or it needs code of a host service
}

// Program is the start of a command line that uses this server's databases from any directory. The
// command finds those of an embedded console in its environment; see CommandNeeds.
func (p Page) Program() string {
	words := "outboxweb "
	for _, flag := range p.Flags {
		words += event.ShellWord(flag) + " "
	}
	return words
}

// CommandLoads reports whether the program's commands can load the projections, none meaning all:
// those that a host service has in Go are not theirs.
func (p Page) CommandLoads(projections ...string) bool {
	for name := range p.Running.InGo {
		if len(projections) == 0 || slices.Contains(projections, name) {
			return false
		}
	}
	return true
}

// Command is a command line of the program, whose flags are the fields of asked; it has none if that is nil.
func (p Page) Command(command string, asked any, arguments ...string) string {
	return request.CommandLine(p.Program()+command, asked, arguments...)
}

// AnyReason is the reason of actions in their shell equivalents, to be replaced by the reader's own.
var AnyReason = operator.ReasonRequest{Reason: "why"}

// Asks are the shell equivalents of an action that is asked for with a request; about is as in Links.Action.
func (p Page) Asks(a operator.Action, asked any, about ...string) Twins {
	t := Twins{Curl: p.CurlPost(p.Links.API().Action(a, about...), asked)}
	if a.OnPublisher() { // which the command line names TOPIC/PUBLISHER
		about = []string{strings.Join(about, "/")}
	}
	if command := a.Command(); command != "" {
		t.CLI = p.Command(command, asked, about...)
	}
	return t
}

// AsksOn is Asks with a reason and, unless it is nil, what the page shows of a campaign or its head.
func (p Page) AsksOn(a operator.Action, expected *operator.Expected, about ...string) Twins {
	return p.Asks(a, operator.ActionRequest{ReasonRequest: AnyReason, Expected: expected}, about...)
}

// Curl is the start of a curl line: behind a login it needs an API token.
func (p Page) Curl() string {
	if p.Me.Auth == operator.AuthLocal || p.Me.Auth == "" {
		return "curl -s "
	}
	return `curl -s -H "Authorization: Bearer $OUTBOXWEB_TOKEN" `
}

func (p Page) CurlGet(u URL) string { return p.Curl() + event.ShellWord(p.Origin+string(u)) }

func (p Page) CurlPost(u URL, body any) string {
	text, err := json.Marshal(body)
	if err != nil { // strings and numbers always marshal
		text = []byte("{}")
	}
	return p.Curl() + "-H 'Content-Type: application/json' -d " + event.ShellWord(string(text)) + " " + event.ShellWord(p.Origin+string(u))
}

func ExpectedOf(r campaign.Row) *operator.Expected {
	return &operator.Expected{Status: r.Status, AttemptCount: &r.AttemptCount}
}
