package templates

import "outboxweb/internal/outbox"

func rowID(r outbox.Row) string { return "row-" + r.CampaignID + "-" + itoa(r.Seq) }

func rowsWith(p Page, f outbox.RowFilter, s outbox.Status) URL {
	f.Status, f.Reverse, f.Cursor = s, false, ""
	return p.Links.Rows(f)
}

// bulky reports whether a list may hold dead rows, which can be requeued in bulk.
func bulky(f outbox.RowFilter) bool { return f.Status == "" || f.Status == outbox.Dead }

func bulkFilter(f outbox.RowFilter) outbox.RequeueFilter {
	return outbox.RequeueFilter{CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
}

// attemptLine heads one attempt in the history.
func attemptLine(a outbox.Attempt) string {
	s := "Attempt " + itoa(a.Attempt)
	if a.Worker != "" {
		s += " by " + a.Worker
	}
	if a.Build != "" {
		s += " (" + a.Build + ")"
	}
	return s
}

// whyNoAct says why nothing can be done about a row by hand.
func whyNoAct(p Page, d outbox.RowDetail) string {
	r, c := d.Row, d.Campaign
	switch {
	case r.Status == outbox.Processing:
		return "A worker holds it right now."
	case !r.IsHead && c.HeadSeq > 0:
		return "It waits behind event " + itoa(c.HeadSeq) + ", the head of its campaign."
	case r.Status == outbox.Pending && d.Event.Skipped != nil && c.Paused == nil:
		return "It is skipped and needs no help: the next free worker passes over it."
	case r.Status == outbox.Pending && c.Paused != nil:
		return "Its campaign is paused; resume it there."
	case r.Status == outbox.Pending && c.Explain(p.Now, p.Around).Hold == outbox.HoldUnserved:
		return "It is due, but no running instance serves its campaign."
	case r.Status == outbox.Pending:
		return "It is due and needs no help: the next free worker takes it."
	}
	return "Nothing needs doing."
}

// RowTitle and EventTitle name a browser's tab.
func RowTitle(campaign string, seq int64) string { return "Row " + itoa(seq) + " of " + campaign }

func EventTitle(campaign string, seq int64) string { return "Event " + itoa(seq) + " of " + campaign }

func entityText(e outbox.EventLine) string {
	if e.EntityType == "" && e.EntityID == "" {
		return "–"
	}
	return Visible(e.EntityType + " " + e.EntityID)
}

func retryMeaning(p Page, r outbox.Row) string {
	was := "it is due already"
	if r.NextAttemptAt.After(p.Now) {
		was = "it was to be tried again " + relative(r.NextAttemptAt, p.Now)
	}
	return "Retry now makes it due at once; " + was + ". The " + count(int64(r.AttemptCount), "failure", "failures") + " so far still count."
}
