package alerts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

var alertNow = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func ruleFor(what alerts.AlertWhat) alerts.AlertRule {
	for _, r := range alerts.AlertRules() {
		if r.What == what {
			return r
		}
	}
	panic(what)
}

func TestAlertRules_findWhatIsWrong(t *testing.T) {
	t.Parallel()
	var waits campaign.Summary
	waits.OldestRetryable = &campaign.Oldest{CampaignID: "c-1", Seq: 7, AgeSeconds: 601}
	waits.Lag.Events = 3
	waits.AsOf, waits.DueSince = alertNow, new(alertNow.Add(-time.Second))
	with := func(change func(*campaign.Summary)) facts.Facts {
		f := facts.Facts{Summary: waits, Moved: true}
		change(&f.Summary)
		return f
	}
	silent := campaign.InstanceState{ID: "w-1", Version: "v1", LastSeen: alertNow.Add(-2 * time.Minute), BeatEvery: 5 * time.Second}
	long := silent
	long.LastSeen = alertNow.Add(-61 * time.Minute)
	stalled := campaign.InstanceState{ID: "w-2", LastSeen: alertNow, BeatEvery: 5 * time.Second, Stalled: true, Trouble: "no such table"}
	failed := subscription.Publisher{SubscriptionName: operator.SubscriptionName{Topic: "t", Publisher: "p"}, Status: subscription.PublisherFailed, ErrorCount: 10, LastError: "answered 500"}
	source := inbound.IntakeSource{Name: "shop", Configured: true, LookedAt: new(alertNow.Add(-time.Minute)), Lease: &campaign.Lease{Owner: "w-1", ExpiresAt: alertNow.Add(time.Second)}}
	sources := func(change func(*inbound.IntakeSource)) facts.Facts {
		s := source
		change(&s)
		return facts.Facts{Sources: []inbound.IntakeSource{s}}
	}
	removed := func(s *inbound.IntakeSource) {
		s.Configured, s.Lease, s.Rejected, s.LookedAt = false, nil, 3, new(alertNow.Add(-time.Hour))
	}
	for _, c := range []struct {
		name  string
		what  alerts.AlertWhat
		facts facts.Facts
		want  string // keys and sentences; empty for none
		error string
	}{
		{"no dead row", alerts.AlertDeadRows, facts.Facts{}, "", ""},
		{"dead row", alerts.AlertDeadRows, facts.Facts{Summary: campaign.Summary{Counts: campaign.Counts{Dead: 1}}, Groups: campaign.ErrorGroups{Groups: []campaign.ErrorGroup{{Dead: 1, Example: "no such table: x"}}}}, "1 row is dead", "no such table: x"},
		{"as many blocked as allowed", alerts.AlertBlocked, with(func(s *campaign.Summary) { s.Campaigns.Blocked = 9 }), "", ""},
		{"one more", alerts.AlertBlocked, with(func(s *campaign.Summary) { s.Campaigns.Blocked, s.Campaigns.Total = 10, 60 }), "10 of 60 campaigns are blocked", ""},
		{"old row", alerts.AlertOldest, facts.Facts{Summary: waits}, "Event 7 of campaign c-1 has waited for 10 min", ""},
		{"row not old enough", alerts.AlertOldest, with(func(s *campaign.Summary) { s.OldestRetryable = &campaign.Oldest{AgeSeconds: 600} }), "", ""},
		{"old row in shadow mode", alerts.AlertOldest, with(func(s *campaign.Summary) { s.Mode = campaign.ModeShadow }), "", ""},
		{"drift", alerts.AlertDrift, with(func(s *campaign.Summary) { s.Campaigns.Drifted, s.Campaigns.Diverged, s.Campaigns.Mismatched = 1, 2, 3 }), "2 campaigns contradict the journal: the projections have events that the journal does not have, and nothing is applied there; Live rows of 1 campaign differ from the journal", ""},
		{"another journal, and no campaign compared", alerts.AlertDrift, with(func(s *campaign.Summary) { s.OtherJournal, s.Events = true, 1 }), "The projections have events that the journal does not have", ""},
		{"drift and unverifiable", alerts.AlertDrift, with(func(s *campaign.Summary) {
			s.Campaigns.Drifted, s.Campaigns.Unverifiable, s.Campaigns.Mismatched = 25, 6, 28
		}), "6 campaigns could not be verified: replaying the events failed; Live rows of 25 campaigns differ from the journal", ""},
		{"unverifiable", alerts.AlertDrift, with(func(s *campaign.Summary) { s.Campaigns.Unverifiable, s.Campaigns.Mismatched = 7, 7 }), "7 campaigns could not be verified: replaying the events failed", ""},
		{"progress", alerts.AlertNoProgress, facts.Facts{Summary: waits, Moved: true}, "", ""},
		{"no progress", alerts.AlertNoProgress, facts.Facts{Summary: waits}, "3 events are not applied", "No worker is running: nothing is applied"},
		{"a worker that starts", alerts.AlertNoProgress, facts.Facts{Summary: func() campaign.Summary { s := waits; s.Worker.Starting = true; return s }()}, "", ""},
		{"between two attempts", alerts.AlertNoProgress, facts.Facts{Summary: func() campaign.Summary { s := waits; s.DueSince = new(alertNow.Add(time.Minute)); return s }()}, "", ""},
		{"nothing to do", alerts.AlertNoProgress, facts.Facts{}, "", ""},
		{"publisher", alerts.AlertPublisher, facts.Facts{Publishers: []subscription.Publisher{failed, {Status: subscription.PublisherActive, UpdatedAt: alertNow}}}, "t/p Publisher t/p has failed after 10 errors", "answered 500"},
		{"silent instance", alerts.AlertInstance, with(func(s *campaign.Summary) { s.Instances = []campaign.InstanceState{silent} }), "w-1 Instance w-1 has been silent for 2 min", ""},
		{"instance long silent", alerts.AlertInstance, with(func(s *campaign.Summary) { s.Instances = []campaign.InstanceState{long} }), "w-1 Instance w-1 has been silent for 1 h", ""},
		{"stalled instance", alerts.AlertInstance, with(func(s *campaign.Summary) { s.Instances = []campaign.InstanceState{stalled} }), "w-2 Instance w-2 is stalled", "no such table"},
		{"full disk", alerts.AlertDatabase, with(func(s *campaign.Summary) { s.Faults = []database.DatabaseFault{database.FullDisk("journal", alertNow)} }), "journal-full The disk of the journal database is full", ""},
		{"no rejected row", alerts.AlertRejected, sources(func(*inbound.IntakeSource) {}), "", ""},
		{"rejected row", alerts.AlertRejected, sources(func(s *inbound.IntakeSource) { s.Rejected = 1 }), "shop 1 row of source shop is rejected", ""},
		{"rejected rows of a source that was removed", alerts.AlertRejected, sources(removed), "", ""},
		{"source that is read", alerts.AlertSource, sources(func(*inbound.IntakeSource) {}), "", ""},
		{"source that cannot be read", alerts.AlertSource, sources(func(s *inbound.IntakeSource) { s.Lease, s.Error, s.ErrorAt = nil, "connection refused", &alertNow }), "shop Source shop cannot be read", "connection refused"},
		{"source without a server", alerts.AlertSource, sources(func(s *inbound.IntakeSource) { s.Lease = nil }), "shop No server reads source shop", ""},
		{"source that changes hands", alerts.AlertSource, sources(func(s *inbound.IntakeSource) { s.Lease, s.LookedAt = nil, new(alertNow.Add(-time.Second)) }), "", ""},
		{"source that was removed", alerts.AlertSource, sources(removed), "", ""},
		{"quarantined projection", alerts.AlertQuarantine, facts.Facts{Summary: campaign.Summary{Held: []campaign.HeldProjection{{Projection: "badges", Quarantined: 2}, {Projection: "seats", Behind: 1}}},
			Quarantined: []campaign.QuarantineCause{{Projection: "seats", Example: "other"}, {Projection: "badges", Example: "no such column"}}}, "badges Projection badges is quarantined in 2 campaigns", "no such column"},
		{"failed run", alerts.AlertFailedRun, facts.Facts{Runs: []replay.Run{{ID: 7, Kind: replay.RunRebuild, Status: replay.RunFailed, FinishedAt: &alertNow, Error: "1 campaign failed"}, {ID: 5, Kind: replay.RunRebuild, Status: replay.RunFailed, FinishedAt: &alertNow}}},
			"rebuild Run 7 (rebuild) has failed", "1 campaign failed"},
		{"verify that drift tells of, which does not begin", alerts.AlertFailedRun, facts.Facts{Runs: []replay.Run{{ID: 7, Kind: replay.RunVerify, Status: replay.RunFailed, FinishedAt: &alertNow, Counts: replay.RunCounts{Failed: 1}}}}, "verify Run 7 (verify) has failed", ""},
	} {
		var got, err string
		for _, cause := range ruleFor(c.what).Causes(c.facts.Judged(alertNow)) {
			got, err = strings.TrimSpace(cause.Key+" "+cause.Sentence), cause.Error
			must.Equal(t, cause.Lingers, strings.Contains(c.name, "does not begin") || strings.Contains(c.name, "long silent"), c.name, "lingers")
		}
		must.Hold(t, (c.want != "" || got == "") && (strings.HasPrefix(got, c.want) || strings.Contains(got, c.want)) && err == c.error, "%s: found %q (%q)", c.name, got, err)
	}
}

// alertMoment is a moment in the life of a cause: after so long, how much is found, and what is sent then.
type alertMoment struct {
	after time.Duration
	found int64 // what the rule counts
	muted bool
	want  alerts.AlertKind
	is    alerts.AlertStatus
}

func TestAlert_tellsOfTheBeginningTheGrowthAndTheEnd(t *testing.T) {
	t.Parallel()
	const none = alerts.AlertNoMessage
	m, day := time.Minute, 24*time.Hour
	fires := []alertMoment{{0, 4, false, none, alerts.AlertPending}, {m, 4, false, none, alerts.AlertPending}, {m, 4, false, alerts.AlertStarted, alerts.AlertFiring}}
	for name, moments := range map[string][]alertMoment{
		"a problem that goes on and ends": append(slices.Clone(fires),
			alertMoment{m, 4, false, none, alerts.AlertFiring}, alertMoment{day - 2*m, 4, false, none, alerts.AlertFiring}, alertMoment{m, 4, false, alerts.AlertReminder, alerts.AlertFiring},
			alertMoment{m, 0, false, none, alerts.AlertFiring}, alertMoment{2 * m, 0, false, alerts.AlertResolved, alerts.AlertOK}, alertMoment{m, 0, false, none, alerts.AlertOK}),
		"one that is over before it held": {
			{0, 4, false, none, alerts.AlertPending}, {m, 0, false, none, alerts.AlertOK}, {m, 4, false, none, alerts.AlertPending}, {m, 4, false, none, alerts.AlertPending},
		},
		"one that comes and goes": append(slices.Clone(fires),
			alertMoment{m, 0, false, none, alerts.AlertFiring}, alertMoment{m, 4, false, none, alerts.AlertFiring}, alertMoment{m, 0, false, none, alerts.AlertFiring},
			alertMoment{m, 4, false, none, alerts.AlertFiring}, alertMoment{m, 0, false, none, alerts.AlertFiring}, alertMoment{2 * m, 0, false, alerts.AlertResolved, alerts.AlertOK}),
		"one that grows": append(slices.Clone(fires),
			alertMoment{m, 5, false, none, alerts.AlertFiring}, alertMoment{m, 6, false, alerts.AlertReminder, alerts.AlertFiring}, alertMoment{m, 8, false, none, alerts.AlertFiring},
			alertMoment{m, 1, false, none, alerts.AlertFiring}, alertMoment{m, 9, false, alerts.AlertReminder, alerts.AlertFiring}),
		"a clock that is set ahead": {
			{0, 4, false, none, alerts.AlertPending}, {48 * time.Hour, 4, false, none, alerts.AlertPending}, {m, 4, false, alerts.AlertStarted, alerts.AlertFiring},
		},
		"a clock that is set back": append(slices.Clone(fires),
			alertMoment{-48 * time.Hour, 4, false, none, alerts.AlertFiring}, alertMoment{day - m, 4, false, none, alerts.AlertFiring}, alertMoment{m, 4, false, alerts.AlertReminder, alerts.AlertFiring},
			alertMoment{m, 0, false, none, alerts.AlertFiring}, alertMoment{-48 * time.Hour, 0, false, none, alerts.AlertFiring}, alertMoment{2 * m, 0, false, alerts.AlertResolved, alerts.AlertOK}),
		"a mute": {
			{0, 4, true, none, alerts.AlertPending}, {m, 4, true, none, alerts.AlertPending}, {m, 4, true, none, alerts.AlertFiring},
			{m, 4, false, alerts.AlertStarted, alerts.AlertFiring}, {2 * day, 9, true, none, alerts.AlertFiring}, {m, 0, true, none, alerts.AlertFiring},
			{day, 0, true, none, alerts.AlertFiring}, {m, 0, false, alerts.AlertResolved, alerts.AlertOK},
		},
		"a mute that nothing outlasts": {
			{0, 4, true, none, alerts.AlertPending}, {m, 4, true, none, alerts.AlertPending}, {m, 4, true, none, alerts.AlertFiring}, {m, 0, true, none, alerts.AlertOK},
		},
	} {
		a, now := alerts.Alert{Rule: "r"}, alertNow
		rule := alerts.AlertRule{Name: "r", What: alerts.AlertDeadRows, For: 2 * m}
		for i, at := range moments {
			now = now.Add(at.after)
			var cause *alerts.AlertCause
			if at.found > 0 {
				cause = &alerts.AlertCause{Count: at.found}
			}
			var kind alerts.AlertKind
			a, kind = a.Next(rule, cause, at.muted, now)
			must.Need(t, kind == at.want && a.Status == at.is, "%s, moment %d: %q in state %q, want %q in %q", name, i, kind, a.Status, at.want, at.is)
			must.Hold(t, !a.Since.After(now) && (kind == none || a.SentAt.Equal(now)), "%s, moment %d at %v: since %v, last told %v", name, i, now, a.Since, a.SentAt)
		}
	}
}

func TestAlertRules_sayWhatIsBehindACause(t *testing.T) {
	t.Parallel()
	at := func(ago time.Duration) *time.Time { return new(alertNow.Add(-ago)) }
	groups := []campaign.ErrorGroup{
		{Fingerprint: "no such table", Example: "no such table: x", Dead: 90, Heads: 1, FirstAt: at(time.Minute)},
		{Fingerprint: "locked", Example: "locked", Dead: 12, Heads: 12, FirstAt: at(time.Hour), Tried: []campaign.Tried{{Build: "v1", Projection: "seats", ProjectionVersion: "abc"}}},
		{Fingerprint: "retried", Failed: 3},
	}
	pub := subscription.Publisher{SubscriptionName: operator.SubscriptionName{Topic: "t", Publisher: "p"}, Status: subscription.PublisherFailed, ErrorCount: 3, ErrorKind: operator.EventError, ErrorPosition: 7, LastErrorAt: at(time.Second), ErrorEvent: &event.EventRef{Position: 7, CampaignID: "c-5", Seq: 3}}
	down, function, unknown := pub, pub, pub
	down.ErrorKind, function.Destination, unknown.ErrorKind, unknown.ErrorEvent = operator.DestinationError, subscription.FunctionDestination, operator.UnknownError, nil
	long := pub
	long.FailingSince = at(time.Minute)
	again := pub
	again.Status = subscription.PublisherActive
	facts := facts.Facts{Groups: campaign.ErrorGroups{Groups: groups}}
	facts.Summary.Campaigns = campaign.CampaignCounts{Total: 60, Blocked: 13, Drifted: 3, Unverifiable: 2, Mismatched: 5}
	facts.Found = []campaign.FoundDrift{{Projection: "seats", Verdict: campaign.VerdictDrift, Since: *at(time.Hour)}, {Projection: "users", Verdict: campaign.VerdictDrift, Since: *at(2 * time.Hour)}, {Projection: "users", Verdict: campaign.VerdictFailed, Since: alertNow}}
	facts.Loaded = []campaign.ProjectionInfo{{Name: "seats", Version: "new1", RowsBuilt: campaign.RowsBuilt{BuiltVersions: []campaign.LoadedVersion{{Version: "old1"}}, BuiltByOtherVersion: true}}}
	for _, c := range []struct {
		what  alerts.AlertWhat
		pub   subscription.Publisher
		since time.Duration
		has   string
	}{
		{alerts.AlertBlocked, pub, time.Hour, "13 of 60 campaigns are blocked by a permanently failed event, with 2 different errors; locked; seats"},
		{alerts.AlertPublisher, pub, time.Second, "Publisher t/p has failed after 3 errors; its destination rejects event 3 of campaign c-5;"},
		{alerts.AlertPublisher, long, time.Minute, "Publisher t/p has failed after 3 errors; its destination rejects event 3 of campaign c-5;"},
		{alerts.AlertPublisher, function, time.Second, "Publisher t/p has failed after 3 errors; its function fails at event 3 of campaign c-5;"},
		{alerts.AlertPublisher, unknown, time.Second, "Publisher t/p has failed after 3 errors; the event at position 7 or its destination is at fault;"},
		{alerts.AlertPublisher, down, time.Second, "Publisher t/p has failed after 3 errors;"},
		{alerts.AlertPublisher, again, time.Second, "Publisher t/p is retried, and has not recovered: 3 errors in a row; its destination rejects event 3 of campaign c-5;"},
		{alerts.AlertDrift, pub, 2 * time.Hour,
			"2 campaigns could not be verified: replaying the events failed; Live rows of 3 campaigns differ from the journal in projections seats and users; ; users"},
	} {
		f := facts
		f.Publishers = []subscription.Publisher{c.pub}
		causes := ruleFor(c.what).Causes(f.Judged(alertNow))
		must.Need(t, len(causes) == 1, "%s: %+v", c.what, causes)
		said := causes[0].Sentence + "; " + causes[0].Error + "; " + causes[0].Projection
		must.Hold(t, alertNow.Sub(causes[0].Since) == c.since && strings.Contains(said, c.has), "%s: since %v, %q", c.what, causes[0].Since, said)
	}
}

func TestAlertRule_saysWhatIsOver(t *testing.T) {
	t.Parallel()
	p := subscription.Publisher{SubscriptionName: operator.SubscriptionName{Topic: "t", Publisher: "p"}, Status: subscription.PublisherActive}
	delivered, paused, resumed := p, p, p
	delivered.LastErrorAt, paused.Status, resumed.LastPublishedAt = &alertNow, subscription.PublisherPaused, new(alertNow.Add(time.Second))
	f := func(all ...subscription.Publisher) facts.Facts {
		return facts.Facts{Publishers: all, Summary: campaign.Summary{Campaigns: campaign.CampaignCounts{Total: 60}}}
	}
	left := f()
	left.Summary.Campaigns.Mismatched, left.Summary.Campaigns.Blocked, left.Summary.Lag.Events = 1, 2, 3
	for _, c := range []struct {
		what  alerts.AlertWhat
		facts facts.Facts
		want  string
	}{
		{alerts.AlertDrift, f(), "no campaign differs from the journal"},
		{alerts.AlertDrift, left, "1 campaign still differs from the journal"},
		{alerts.AlertBlocked, left, "2 campaigns still blocked, of up to 9 that the rule allows"},
		{alerts.AlertOldest, left, "3 events not applied yet"},
		{alerts.AlertNoProgress, f(), "every event is applied"},
		{alerts.AlertDatabase, left, "the fault t/p is over"},
		{alerts.AlertPublisher, f(delivered), "publisher t/p delivers again"},
		{alerts.AlertPublisher, f(paused), "publisher t/p was paused"},
		{alerts.AlertPublisher, f(resumed), "publisher t/p delivers again"},
		{alerts.AlertPublisher, f(p), "publisher t/p has nothing left to deliver, after an operator's action"},
		{alerts.AlertPublisher, f(), "publisher t/p was removed"},
	} {
		must.Equal(t, ruleFor(c.what).Calm(c.facts, alerts.Alert{Cause: alerts.AlertCause{Key: "t/p"}, Since: alertNow}), c.want, c.what)
	}
}

func TestMuteEnd_isOneOfTheSpans(t *testing.T) {
	t.Parallel()
	for _, span := range alerts.AlertMuteSpans {
		end, err := alerts.MuteEnd(span, alertNow)
		must.Hold(t, err == nil && end.Sub(alertNow) >= time.Hour, "%s: until %v, %v", span, end, err)
	}
	for _, span := range []string{"2h", "morning", ""} {
		_, err := alerts.MuteEnd(span, alertNow)
		must.Hold(t, errors.Is(err, event.ErrInvalid), "%q: %v", span, err)
	}
}
