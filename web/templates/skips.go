package templates

import "github.com/outboxweb/outboxweb/internal/outbox"

const skippedGlyph = "»"

// Skips is the list of a campaign's skips in the API.
func (l Links) Skips(id string) URL { return l.at(nil, "campaigns", id, "skips") }

// CampaignSkips is the section of a campaign's page that lists its skipped events.
func (l Links) CampaignSkips(id string) URL { return l.Campaign(id) + "#skipped" }

// unskipFormID is the id of the form that undoes a skip.
func unskipFormID(k outbox.Skip) string { return "unskip-form-" + itoa(k.ID) }

// unskipForms are the ids of the forms of active skips.
func unskipForms(skips []outbox.Skip) []string {
	var forms []string
	for _, k := range skips {
		if k.Active() {
			forms = append(forms, unskipFormID(k))
		}
	}
	return forms
}

// skipProgress describes the progress of an active skip.
func skipProgress(c outbox.Campaign, k outbox.Skip) string {
	switch {
	case c.AppliedSeq < k.Seq:
		return "not yet skipped by a worker"
	case c.AppliedSeq == k.Seq:
		return "skipped; nothing later is applied yet"
	default:
		return "skipped, and later events are applied"
	}
}

// skipMeaning says what an active skip does to its event.
func skipMeaning(c outbox.Campaign, k outbox.Skip) string {
	switch {
	case c.AppliedSeq < k.Seq:
		return "No projection will apply this event. The next free worker skips it."
	case c.AppliedSeq == k.Seq:
		return "No projection applied this event. Nothing later is applied yet, so the skip can still be undone."
	default:
		return "No projection applied this event, and later ones are applied: append a compensating event if needed."
	}
}

func skipPhrase(r outbox.Row) string {
	return outbox.ActionSkip.Phrase(outbox.Reach{Skipped: outbox.RowKey{CampaignID: r.CampaignID, Seq: r.Seq}})
}

func skipTwins(p Page, r outbox.Row) Twins {
	return p.asks(outbox.ActionSkip, outbox.SkipRequest{Reason: anyReason.Reason, Confirm: skipPhrase(r), Expected: expectedOf(r)}, r.CampaignID, itoa(r.Seq))
}

func unskipTwins(p Page, c outbox.Campaign, k outbox.Skip) Twins {
	return p.asksOn(outbox.ActionUnskip, &outbox.Expected{HeadSeq: c.HeadSeq}, k.CampaignID, itoa(k.Seq))
}
