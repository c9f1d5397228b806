package campaigns

import (
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func requeueTwins(p ui.Page, r campaign.Row) ui.Twins {
	asked := campaign.RequeueRowRequest{ReasonRequest: ui.AnyReason, Confirm: operator.ActionRequeue.Phrase(operator.Reach{Released: r.Released()}), Expected: ui.ExpectedOf(r)}
	return p.Asks(operator.ActionRequeue, asked, r.CampaignID, ui.Itoa(r.Seq))
}

// headTwins are the shell equivalents of retrying a row or marking it dead.
func headTwins(p ui.Page, a operator.Action, r campaign.Row) ui.Twins {
	return p.AsksOn(a, ui.ExpectedOf(r), r.CampaignID, ui.Itoa(r.Seq))
}

// campaignTwins are the shell equivalents of the actions on a campaign that the reader may perform.
func campaignTwins(p ui.Page, c campaign.Campaign) ui.Twins {
	var curl, cli []string
	for _, a := range c.Offered() {
		if p.Offers(a.Action) {
			t := p.AsksOn(a.Action, nil, c.CampaignID)
			curl, cli = append(curl, t.Curl), append(cli, t.CLI)
		}
	}
	return ui.Twins{Curl: strings.Join(curl, "\n"), CLI: strings.Join(cli, "\n")}
}

// eventTwins are the shell equivalents of reading an event and downloading its payload.
func eventTwins(p ui.Page, e event.Event) ui.Twins {
	return ui.Twins{Curl: p.CurlGet(p.Links.API().Event(e.CampaignID, e.Seq)) + "\n" +
		p.Curl() + "-OJ " + event.ShellWord(p.Origin+string(p.Links.API().Payload(e.CampaignID, e.Seq)))}
}

// rowTwins are the shell equivalents of reading a row with its event, and the rows of its campaign.
func rowTwins(p ui.Page, r campaign.Row) ui.Twins {
	cli := p.Command("report --json", campaign.RowFilter{CampaignID: r.CampaignID})
	if r.LastError != "" && p.CommandLoads() {
		cli = p.Command("failures explain", nil, r.CampaignID, ui.Itoa(r.Seq))
	}
	return ui.Twins{
		Curl: p.CurlGet(p.Links.API().Row(r.CampaignID, r.Seq)) + "\n" +
			p.Curl() + "-OJ " + event.ShellWord(p.Origin+string(p.Links.API().Payload(r.CampaignID, r.Seq))),
		CLI: cli,
	}
}
