package templates

import "outboxweb/internal/outbox"

func rowID(r outbox.Row) string { return "row-" + r.CampaignID + "-" + itoa(r.Seq) }

func rowsWith(p Page, f outbox.RowFilter, s outbox.Status) URL {
	f.Status, f.Cursor = s, ""
	return p.Links.Rows(f)
}

func firstRows(f outbox.RowFilter) outbox.RowFilter {
	f.Cursor = ""
	return f
}

func nextRows(p Page, v RowsView) URL {
	if v.Page.NextCursor == nil {
		return ""
	}
	f := v.Filter
	f.Cursor = *v.Page.NextCursor
	return p.Links.Rows(f)
}

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
func whyNoAct(d outbox.RowDetail) string {
	r, c := d.Row, d.Campaign
	switch {
	case r.Status == outbox.Processing:
		return "A worker holds it right now."
	case !r.IsHead && c.HeadSeq > 0:
		return "It waits behind event " + itoa(c.HeadSeq) + ", the head of its campaign."
	case r.Status == outbox.Pending && c.Paused != nil:
		return "Its campaign is paused; resume it there."
	case r.Status == outbox.Pending:
		return "It is due and needs no help: the next free worker takes it."
	}
	return "Nothing needs doing."
}

// RowTitle and EventTitle name a browser's tab.
func RowTitle(campaign string, seq int64) string { return "Row " + itoa(seq) + " of " + campaign }

func EventTitle(campaign string, seq int64) string { return "Event " + itoa(seq) + " of " + campaign }

func causeCount(c Cause) string {
	switch {
	case c.Failed == 0:
		return num(c.Dead) + " dead"
	case c.Dead == 0:
		return num(c.Failed) + " failed"
	default:
		return num(c.Dead) + " dead, " + num(c.Failed) + " failed"
	}
}

// causeStatus is the status to list a cause's rows by.
func causeStatus(c Cause) outbox.Status {
	if c.Dead > 0 {
		return outbox.Dead
	}
	return outbox.Failed
}

func causeHue(c Cause) string { return "s-" + string(causeStatus(c)) }

func entityText(e outbox.Event) string {
	if e.EntityType == "" && e.EntityID == "" {
		return "–"
	}
	return e.EntityType + " " + e.EntityID
}

func retryMeaning(p Page, r outbox.Row) string {
	was := "it is due already"
	if r.NextAttemptAt.After(p.Now) {
		was = "it was to be tried again " + relative(r.NextAttemptAt, p.Now)
	}
	return "Retry now makes it due at once; " + was + ". The " + count(int64(r.AttemptCount), "failure", "failures") + " so far still count."
}
