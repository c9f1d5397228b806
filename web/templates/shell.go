package templates

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/request"
)

// Twins are the shell equivalents of an action: a curl command and, if there is one, the program's
// own command. Both can be pasted into a POSIX shell.
type Twins struct {
	Curl string
	CLI  string // empty if there is no such command, or it needs code of a host service
}

// program is the start of a command line that uses this server's databases from any directory. The
// command finds those of an embedded console in its environment; see commandNeeds.
func (p Page) program() string {
	words := "outboxweb "
	for _, flag := range p.Flags {
		words += outbox.ShellWord(flag) + " "
	}
	return words
}

// commandLoads reports whether the program's commands can load the projections, none meaning all:
// those that a host service has in Go are not theirs.
func (p Page) commandLoads(projections ...string) bool {
	for name := range p.Running.InGo {
		if len(projections) == 0 || slices.Contains(projections, name) {
			return false
		}
	}
	return true
}

// command is a command line of the program, whose flags are the fields of asked; it has none if that is nil.
func (p Page) command(command string, asked any, arguments ...string) string {
	return request.CommandLine(p.program()+command, asked, arguments...)
}

// anyReason is the reason of actions in their shell equivalents, to be replaced by the reader's own.
var anyReason = outbox.ReasonRequest{Reason: "why"}

// asks are the shell equivalents of an action that is asked for with a request; about is as in Links.Action.
func (p Page) asks(a outbox.Action, asked any, about ...string) Twins {
	t := Twins{Curl: p.curlPost(p.Links.API().Action(a, about...), asked)}
	if a.OnPublisher() { // which the command line names TOPIC/PUBLISHER
		about = []string{strings.Join(about, "/")}
	}
	if command := a.Command(); command != "" {
		t.CLI = p.command(command, asked, about...)
	}
	return t
}

// asksOn is asks with a reason and, unless it is nil, what the page shows of a campaign or its head.
func (p Page) asksOn(a outbox.Action, expected *outbox.Expected, about ...string) Twins {
	return p.asks(a, outbox.ActionRequest{ReasonRequest: anyReason, Expected: expected}, about...)
}

// curl is the start of a curl line: behind a login it needs an API token.
func (p Page) curl() string {
	if p.Me.Auth == outbox.AuthLocal || p.Me.Auth == "" {
		return "curl -s "
	}
	return `curl -s -H "Authorization: Bearer $OUTBOXWEB_TOKEN" `
}

func (p Page) curlGet(u URL) string { return p.curl() + outbox.ShellWord(p.Origin+string(u)) }

func (p Page) curlPost(u URL, body any) string {
	text, err := json.Marshal(body)
	if err != nil { // strings and numbers always marshal
		text = []byte("{}")
	}
	return p.curl() + "-H 'Content-Type: application/json' -d " + outbox.ShellWord(string(text)) + " " + outbox.ShellWord(p.Origin+string(u))
}

func requeueTwins(p Page, r outbox.Row) Twins {
	asked := outbox.RequeueRowRequest{ReasonRequest: anyReason, Confirm: outbox.ActionRequeue.Phrase(outbox.Reach{Released: r.Released()}), Expected: expectedOf(r)}
	return p.asks(outbox.ActionRequeue, asked, r.CampaignID, itoa(r.Seq))
}

// headTwins are the shell equivalents of retrying a row or marking it dead.
func headTwins(p Page, a outbox.Action, r outbox.Row) Twins {
	return p.asksOn(a, expectedOf(r), r.CampaignID, itoa(r.Seq))
}

// campaignTwins are the shell equivalents of the actions on a campaign that the reader may perform.
func campaignTwins(p Page, c outbox.Campaign) Twins {
	var curl, cli []string
	for _, a := range c.Offered() {
		if p.Offers(a.Action) {
			t := p.asksOn(a.Action, nil, c.CampaignID)
			curl, cli = append(curl, t.Curl), append(cli, t.CLI)
		}
	}
	return Twins{Curl: strings.Join(curl, "\n"), CLI: strings.Join(cli, "\n")}
}

// eventTwins are the shell equivalents of reading an event and downloading its payload.
func eventTwins(p Page, e outbox.Event) Twins {
	return Twins{Curl: p.curlGet(p.Links.API().Event(e.CampaignID, e.Seq)) + "\n" +
		p.curl() + "-OJ " + outbox.ShellWord(p.Origin+string(p.Links.API().Payload(e.CampaignID, e.Seq)))}
}

// rowTwins are the shell equivalents of reading a row with its event, and the rows of its campaign.
func rowTwins(p Page, r outbox.Row) Twins {
	cli := p.command("report --json", outbox.RowFilter{CampaignID: r.CampaignID})
	if r.LastError != "" && p.commandLoads() {
		cli = p.command("failures explain", nil, r.CampaignID, itoa(r.Seq))
	}
	return Twins{
		Curl: p.curlGet(p.Links.API().Row(r.CampaignID, r.Seq)) + "\n" +
			p.curl() + "-OJ " + outbox.ShellWord(p.Origin+string(p.Links.API().Payload(r.CampaignID, r.Seq))),
		CLI: cli,
	}
}

func expectedOf(r outbox.Row) *outbox.Expected {
	return &outbox.Expected{Status: r.Status, AttemptCount: &r.AttemptCount}
}

func curlAppend(p Page) string {
	return p.curl() + "-H 'Content-Type: application/json' \\\n  -d '{\"event_type\":\"campaign.created\",\"payload\":{\"name\":\"Cinder Ford\"}}' \\\n  " +
		outbox.ShellWord(p.Origin+string(p.Links.API().Events("c-1")))
}
