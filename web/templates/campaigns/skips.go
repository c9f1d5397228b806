package campaigns

import (
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// unskipFormID is the id of the form that undoes a skip.
func unskipFormID(k event.Skip) string { return "unskip-form-" + ui.Itoa(k.ID) }

// unskipForms are the ids of the forms of active skips.
func unskipForms(skips []event.Skip) []string {
	var forms []string
	for _, k := range skips {
		if k.Active() {
			forms = append(forms, unskipFormID(k))
		}
	}
	return forms
}

// skipProgress describes the progress of an active skip.
func skipProgress(c campaign.Campaign, k event.Skip) string {
	switch {
	case c.AppliedSeq < k.Seq && c.Paused != nil:
		return "No projection will apply this event. The campaign is paused: a resume confirms the skip, and until then it can be undone."
	case c.AppliedSeq < k.Seq:
		return "not yet skipped by a worker"
	case c.AppliedSeq == k.Seq:
		return "skipped; nothing later is applied yet"
	default:
		return "skipped, and later events are applied"
	}
}

// skipMeaning says what an active skip does to its event.
func skipMeaning(c campaign.Campaign, k event.Skip) string {
	switch {
	case c.AppliedSeq < k.Seq:
		return "No projection will apply this event. The next free worker skips it."
	case c.AppliedSeq == k.Seq:
		return "No projection applied this event. Nothing later is applied yet, so the skip can still be undone."
	default:
		return "No projection applied this event, and later ones are applied: append a compensating event if needed."
	}
}

func skipPhrase(r campaign.Row) string {
	return operator.ActionSkip.Phrase(operator.Reach{Skipped: event.RowKey{CampaignID: r.CampaignID, Seq: r.Seq}})
}

func skipTwins(p ui.Page, r campaign.Row, holds bool) ui.Twins {
	return p.Asks(operator.ActionSkip, campaign.SkipRequest{Reason: ui.AnyReason.Reason, Hold: holds, Confirm: skipPhrase(r), Expected: ui.ExpectedOf(r)}, r.CampaignID, ui.Itoa(r.Seq))
}

func unskipTwins(p ui.Page, c campaign.Campaign, k event.Skip) ui.Twins {
	return p.AsksOn(operator.ActionUnskip, &operator.Expected{HeadSeq: c.HeadSeq}, k.CampaignID, ui.Itoa(k.Seq))
}

// unskipActions are the actions on a campaign's skips.
func unskipActions(v CampaignView) []operator.Action {
	if slices.ContainsFunc(v.Skips.Items, v.Campaign.MayUnskip) {
		return []operator.Action{operator.ActionUnskip}
	}
	return nil
}
