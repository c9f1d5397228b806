package templates

import (
	"encoding/json"
	"strconv"
	"strings"

	"outboxweb/internal/outbox"
)

// Twins are the same thing for scripts: a curl command and, where there is
// one, the program's own command. Both can be pasted into a POSIX shell.
type Twins struct {
	Curl string
	CLI  string // empty when no command does the same
}

// shellQuote writes s as one word of a POSIX shell.
func shellQuote(s string) string {
	plain := s != ""
	for _, r := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@,+", r) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// program is how a command line begins that works on this server's databases,
// from any directory.
func (p Page) program() string {
	words := "outboxweb "
	for _, flag := range p.Flags {
		words += shellQuote(flag) + " "
	}
	return words
}

func curlGet(origin string, u URL) string {
	return "curl -s " + shellQuote(origin+string(u))
}

// actBody is what the API's acts read; its field order is the order shown.
type actBody struct {
	Reason   string           `json:"reason"`
	Confirm  string           `json:"confirm,omitempty"`
	Expected *outbox.Expected `json:"expected,omitempty"`
}

func curlAct(origin string, u URL, expected *outbox.Expected) string {
	return curlBody(origin, u, actBody{Reason: "why", Expected: expected})
}

func curlBody(origin string, u URL, b actBody) string {
	body, err := json.Marshal(b)
	if err != nil { // strings and numbers always marshal
		body = []byte("{}")
	}
	return "curl -s -H 'Content-Type: application/json' -d " + shellQuote(string(body)) + " " + shellQuote(origin+string(u))
}

func requeueTwins(p Page, r outbox.Row) Twins {
	body := actBody{Reason: "why", Confirm: outbox.ActRequeue.Phrase(outbox.Reach{Released: r.Released()}), Expected: expectedOf(r)}
	confirm := ""
	if body.Confirm != "" {
		confirm = "--confirm " + shellQuote(body.Confirm) + " "
	}
	return Twins{
		Curl: curlBody(p.Origin, p.Links.API().Act(outbox.ActRequeue, r.CampaignID, itoa(r.Seq)), body),
		CLI:  p.program() + "requeue --reason 'why' " + confirm + "-- " + shellQuote(r.CampaignID) + " " + strconv.FormatInt(r.Seq, 10),
	}
}

func retryTwins(p Page, r outbox.Row) Twins {
	return Twins{
		Curl: curlAct(p.Origin, p.Links.API().Act(outbox.ActRetry, r.CampaignID, itoa(r.Seq)), expectedOf(r)),
		CLI:  p.program() + "retry --reason 'why' -- " + shellQuote(r.CampaignID) + " " + itoa(r.Seq),
	}
}

func deadLetterTwins(p Page, r outbox.Row) Twins {
	return Twins{
		Curl: curlAct(p.Origin, p.Links.API().Act(outbox.ActDeadLetter, r.CampaignID, itoa(r.Seq)), expectedOf(r)),
		CLI:  p.program() + "dead-letter --reason 'why' -- " + shellQuote(r.CampaignID) + " " + itoa(r.Seq),
	}
}

// campaignTwins are the actions on a campaign that the reader may do.
func campaignTwins(p Page, c outbox.Campaign) Twins {
	var curl, cli []string
	for _, a := range c.Offered() {
		if p.Offers(a.Action) {
			curl = append(curl, curlAct(p.Origin, p.Links.API().Act(a.Action, c.CampaignID), nil))
			cli = append(cli, p.program()+"campaigns "+a.Action.Command()+" --reason 'why' -- "+shellQuote(c.CampaignID))
		}
	}
	return Twins{Curl: strings.Join(curl, "\n"), CLI: strings.Join(cli, "\n")}
}

// eventTwins reads an event, and takes its payload to a file.
func eventTwins(p Page, e outbox.Event) Twins {
	return Twins{Curl: curlGet(p.Origin, p.Links.API().Event(e.CampaignID, e.Seq)) + "\n" +
		"curl -s -OJ " + shellQuote(p.Origin+string(p.Links.API().Payload(e.CampaignID, e.Seq)))}
}

// rowTwins reads a row with its event, and the rows of its campaign.
func rowTwins(p Page, r outbox.Row) Twins {
	return Twins{
		Curl: curlGet(p.Origin, p.Links.API().Row(r.CampaignID, r.Seq)) + "\n" +
			"curl -s -OJ " + shellQuote(p.Origin+string(p.Links.API().Payload(r.CampaignID, r.Seq))),
		CLI: p.program() + "report --json --campaign=" + shellQuote(r.CampaignID),
	}
}

func expectedOf(r outbox.Row) *outbox.Expected {
	return &outbox.Expected{Status: r.Status, AttemptCount: &r.AttemptCount}
}

func curlAppend(p Page) string {
	return "curl -s -H 'Content-Type: application/json' \\\n  -d '{\"event_type\":\"campaign.created\",\"payload\":{\"name\":\"Cinder Ford\"}}' \\\n  " +
		shellQuote(p.Origin+string(p.Links.API().Events("c-1")))
}
