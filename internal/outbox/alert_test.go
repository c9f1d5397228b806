package outbox_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

var alertNow = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func ruleFor(what outbox.AlertWhat) outbox.AlertRule {
	for _, r := range outbox.AlertRules() {
		if r.What == what {
			return r
		}
	}
	panic(what)
}

func TestAlertRules_findWhatIsWrong(t *testing.T) {
	t.Parallel()
	var waits outbox.Summary
	waits.OldestRetryable = &outbox.Oldest{CampaignID: "c-1", Seq: 7, AgeSeconds: 601}
	waits.Lag.Events = 3
	waits.AsOf, waits.DueSince = alertNow, new(alertNow.Add(-time.Second))
	with := func(change func(*outbox.Summary)) outbox.Facts {
		f := outbox.Facts{Summary: waits, Moved: true}
		change(&f.Summary)
		return f
	}
	silent := outbox.InstanceState{ID: "w-1", Version: "v1", LastSeen: alertNow.Add(-2 * time.Minute), BeatEvery: 5 * time.Second}
	long := silent
	long.LastSeen = alertNow.Add(-61 * time.Minute)
	stalled := outbox.InstanceState{ID: "w-2", LastSeen: alertNow, BeatEvery: 5 * time.Second, Stalled: true, Trouble: "no such table"}
	failed := outbox.Publisher{SubscriptionName: outbox.SubscriptionName{Topic: "t", Publisher: "p"}, Status: outbox.PublisherFailed, ErrorCount: 10, LastError: "answered 500"}
	source := outbox.IntakeSource{Name: "shop", Configured: true, LookedAt: new(alertNow.Add(-time.Minute)), Lease: &outbox.Lease{Owner: "w-1", ExpiresAt: alertNow.Add(time.Second)}}
	sources := func(change func(*outbox.IntakeSource)) outbox.Facts {
		s := source
		change(&s)
		return outbox.Facts{Sources: []outbox.IntakeSource{s}}
	}
	removed := func(s *outbox.IntakeSource) {
		s.Configured, s.Lease, s.Rejected, s.LookedAt = false, nil, 3, new(alertNow.Add(-time.Hour))
	}
	for _, c := range []struct {
		name  string
		what  outbox.AlertWhat
		facts outbox.Facts
		want  string // keys and sentences; empty for none
		error string
	}{
		{"no dead row", outbox.AlertDeadRows, outbox.Facts{}, "", ""},
		{"dead row", outbox.AlertDeadRows, outbox.Facts{Summary: outbox.Summary{Counts: outbox.Counts{Dead: 1}}, Groups: outbox.ErrorGroups{Groups: []outbox.ErrorGroup{{Dead: 1, Example: "no such table: x"}}}}, "1 row is dead", "no such table: x"},
		{"as many blocked as allowed", outbox.AlertBlocked, with(func(s *outbox.Summary) { s.Campaigns.Blocked = 9 }), "", ""},
		{"one more", outbox.AlertBlocked, with(func(s *outbox.Summary) { s.Campaigns.Blocked, s.Campaigns.Total = 10, 60 }), "10 of 60 campaigns are blocked", ""},
		{"old row", outbox.AlertOldest, outbox.Facts{Summary: waits}, "Event 7 of campaign c-1 has waited for 10 min", ""},
		{"row not old enough", outbox.AlertOldest, with(func(s *outbox.Summary) { s.OldestRetryable = &outbox.Oldest{AgeSeconds: 600} }), "", ""},
		{"old row in shadow mode", outbox.AlertOldest, with(func(s *outbox.Summary) { s.Mode = outbox.ModeShadow }), "", ""},
		{"drift", outbox.AlertDrift, with(func(s *outbox.Summary) { s.Campaigns.Drifted, s.Campaigns.Diverged, s.Campaigns.Mismatched = 1, 2, 3 }), "2 campaigns contradict the journal: the projections have events that the journal does not have, and nothing is applied there; Live rows of 1 campaign differ from the journal", ""},
		{"another journal, and no campaign compared", outbox.AlertDrift, with(func(s *outbox.Summary) { s.OtherJournal, s.Events = true, 1 }), "The projections have events that the journal does not have", ""},
		{"drift and unverifiable", outbox.AlertDrift, with(func(s *outbox.Summary) {
			s.Campaigns.Drifted, s.Campaigns.Unverifiable, s.Campaigns.Mismatched = 25, 6, 28
		}), "6 campaigns could not be verified: replaying the events failed; Live rows of 25 campaigns differ from the journal", ""},
		{"unverifiable", outbox.AlertDrift, with(func(s *outbox.Summary) { s.Campaigns.Unverifiable, s.Campaigns.Mismatched = 7, 7 }), "7 campaigns could not be verified: replaying the events failed", ""},
		{"progress", outbox.AlertNoProgress, outbox.Facts{Summary: waits, Moved: true}, "", ""},
		{"no progress", outbox.AlertNoProgress, outbox.Facts{Summary: waits}, "3 events are not applied", "No worker is running: nothing is applied"},
		{"a worker that starts", outbox.AlertNoProgress, outbox.Facts{Summary: func() outbox.Summary { s := waits; s.Worker.Starting = true; return s }()}, "", ""},
		{"between two attempts", outbox.AlertNoProgress, outbox.Facts{Summary: func() outbox.Summary { s := waits; s.DueSince = new(alertNow.Add(time.Minute)); return s }()}, "", ""},
		{"nothing to do", outbox.AlertNoProgress, outbox.Facts{}, "", ""},
		{"publisher", outbox.AlertPublisher, outbox.Facts{Publishers: []outbox.Publisher{failed, {Status: outbox.PublisherActive, UpdatedAt: alertNow}}}, "t/p Publisher t/p has failed after 10 errors", "answered 500"},
		{"silent instance", outbox.AlertInstance, with(func(s *outbox.Summary) { s.Instances = []outbox.InstanceState{silent} }), "w-1 Instance w-1 has been silent for 2 min", ""},
		{"instance long silent", outbox.AlertInstance, with(func(s *outbox.Summary) { s.Instances = []outbox.InstanceState{long} }), "w-1 Instance w-1 has been silent for 1 h", ""},
		{"stalled instance", outbox.AlertInstance, with(func(s *outbox.Summary) { s.Instances = []outbox.InstanceState{stalled} }), "w-2 Instance w-2 is stalled", "no such table"},
		{"full disk", outbox.AlertDatabase, with(func(s *outbox.Summary) { s.Faults = []outbox.DatabaseFault{outbox.FullDisk("journal", alertNow)} }), "journal-full The disk of the journal database is full", ""},
		{"no rejected row", outbox.AlertRejected, sources(func(*outbox.IntakeSource) {}), "", ""},
		{"rejected row", outbox.AlertRejected, sources(func(s *outbox.IntakeSource) { s.Rejected = 1 }), "shop 1 row of source shop is rejected", ""},
		{"rejected rows of a source that was removed", outbox.AlertRejected, sources(removed), "", ""},
		{"source that is read", outbox.AlertSource, sources(func(*outbox.IntakeSource) {}), "", ""},
		{"source that cannot be read", outbox.AlertSource, sources(func(s *outbox.IntakeSource) { s.Lease, s.Error, s.ErrorAt = nil, "connection refused", &alertNow }), "shop Source shop cannot be read", "connection refused"},
		{"source without a server", outbox.AlertSource, sources(func(s *outbox.IntakeSource) { s.Lease = nil }), "shop No server reads source shop", ""},
		{"source that changes hands", outbox.AlertSource, sources(func(s *outbox.IntakeSource) { s.Lease, s.LookedAt = nil, new(alertNow.Add(-time.Second)) }), "", ""},
		{"source that was removed", outbox.AlertSource, sources(removed), "", ""},
		{"quarantined projection", outbox.AlertQuarantine, outbox.Facts{Summary: outbox.Summary{Held: []outbox.HeldProjection{{Projection: "badges", Quarantined: 2}, {Projection: "seats", Behind: 1}}},
			Quarantined: []outbox.QuarantineCause{{Projection: "seats", Example: "other"}, {Projection: "badges", Example: "no such column"}}}, "badges Projection badges is quarantined in 2 campaigns", "no such column"},
		{"failed run", outbox.AlertFailedRun, outbox.Facts{Runs: []outbox.Run{{ID: 7, Kind: outbox.RunRebuild, Status: outbox.RunFailed, FinishedAt: &alertNow, Error: "1 campaign failed"}, {ID: 5, Kind: outbox.RunRebuild, Status: outbox.RunFailed, FinishedAt: &alertNow}}},
			"rebuild Run 7 (rebuild) has failed", "1 campaign failed"},
		{"verify that drift tells of, which does not begin", outbox.AlertFailedRun, outbox.Facts{Runs: []outbox.Run{{ID: 7, Kind: outbox.RunVerify, Status: outbox.RunFailed, FinishedAt: &alertNow, Counts: outbox.RunCounts{Failed: 1}}}}, "verify Run 7 (verify) has failed", ""},
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
	want  outbox.AlertKind
	is    outbox.AlertStatus
}

func TestAlert_tellsOfTheBeginningTheGrowthAndTheEnd(t *testing.T) {
	t.Parallel()
	const none = outbox.AlertNoMessage
	m, day := time.Minute, 24*time.Hour
	fires := []alertMoment{{0, 4, false, none, outbox.AlertPending}, {m, 4, false, none, outbox.AlertPending}, {m, 4, false, outbox.AlertStarted, outbox.AlertFiring}}
	for name, moments := range map[string][]alertMoment{
		"a problem that goes on and ends": append(slices.Clone(fires),
			alertMoment{m, 4, false, none, outbox.AlertFiring}, alertMoment{day - 2*m, 4, false, none, outbox.AlertFiring}, alertMoment{m, 4, false, outbox.AlertReminder, outbox.AlertFiring},
			alertMoment{m, 0, false, none, outbox.AlertFiring}, alertMoment{2 * m, 0, false, outbox.AlertResolved, outbox.AlertOK}, alertMoment{m, 0, false, none, outbox.AlertOK}),
		"one that is over before it held": {
			{0, 4, false, none, outbox.AlertPending}, {m, 0, false, none, outbox.AlertOK}, {m, 4, false, none, outbox.AlertPending}, {m, 4, false, none, outbox.AlertPending},
		},
		"one that comes and goes": append(slices.Clone(fires),
			alertMoment{m, 0, false, none, outbox.AlertFiring}, alertMoment{m, 4, false, none, outbox.AlertFiring}, alertMoment{m, 0, false, none, outbox.AlertFiring},
			alertMoment{m, 4, false, none, outbox.AlertFiring}, alertMoment{m, 0, false, none, outbox.AlertFiring}, alertMoment{2 * m, 0, false, outbox.AlertResolved, outbox.AlertOK}),
		"one that grows": append(slices.Clone(fires),
			alertMoment{m, 5, false, none, outbox.AlertFiring}, alertMoment{m, 6, false, outbox.AlertReminder, outbox.AlertFiring}, alertMoment{m, 8, false, none, outbox.AlertFiring},
			alertMoment{m, 1, false, none, outbox.AlertFiring}, alertMoment{m, 9, false, outbox.AlertReminder, outbox.AlertFiring}),
		"a clock that is set ahead": {
			{0, 4, false, none, outbox.AlertPending}, {48 * time.Hour, 4, false, none, outbox.AlertPending}, {m, 4, false, outbox.AlertStarted, outbox.AlertFiring},
		},
		"a clock that is set back": append(slices.Clone(fires),
			alertMoment{-48 * time.Hour, 4, false, none, outbox.AlertFiring}, alertMoment{day - m, 4, false, none, outbox.AlertFiring}, alertMoment{m, 4, false, outbox.AlertReminder, outbox.AlertFiring},
			alertMoment{m, 0, false, none, outbox.AlertFiring}, alertMoment{-48 * time.Hour, 0, false, none, outbox.AlertFiring}, alertMoment{2 * m, 0, false, outbox.AlertResolved, outbox.AlertOK}),
		"a mute": {
			{0, 4, true, none, outbox.AlertPending}, {m, 4, true, none, outbox.AlertPending}, {m, 4, true, none, outbox.AlertFiring},
			{m, 4, false, outbox.AlertStarted, outbox.AlertFiring}, {2 * day, 9, true, none, outbox.AlertFiring}, {m, 0, true, none, outbox.AlertFiring},
			{day, 0, true, none, outbox.AlertFiring}, {m, 0, false, outbox.AlertResolved, outbox.AlertOK},
		},
		"a mute that nothing outlasts": {
			{0, 4, true, none, outbox.AlertPending}, {m, 4, true, none, outbox.AlertPending}, {m, 4, true, none, outbox.AlertFiring}, {m, 0, true, none, outbox.AlertOK},
		},
	} {
		a, now := outbox.Alert{Rule: "r"}, alertNow
		rule := outbox.AlertRule{Name: "r", What: outbox.AlertDeadRows, For: 2 * m}
		for i, at := range moments {
			now = now.Add(at.after)
			var cause *outbox.AlertCause
			if at.found > 0 {
				cause = &outbox.AlertCause{Count: at.found}
			}
			var kind outbox.AlertKind
			a, kind = a.Next(rule, cause, at.muted, now)
			must.Need(t, kind == at.want && a.Status == at.is, "%s, moment %d: %q in state %q, want %q in %q", name, i, kind, a.Status, at.want, at.is)
			must.Hold(t, !a.Since.After(now) && (kind == none || a.SentAt.Equal(now)), "%s, moment %d at %v: since %v, last told %v", name, i, now, a.Since, a.SentAt)
		}
	}
}

func TestAlertRules_sayWhatIsBehindACause(t *testing.T) {
	t.Parallel()
	at := func(ago time.Duration) *time.Time { return new(alertNow.Add(-ago)) }
	groups := []outbox.ErrorGroup{
		{Fingerprint: "no such table", Example: "no such table: x", Dead: 90, Heads: 1, FirstAt: at(time.Minute)},
		{Fingerprint: "locked", Example: "locked", Dead: 12, Heads: 12, FirstAt: at(time.Hour), Tried: []outbox.Tried{{Build: "v1", Projection: "seats", ProjectionVersion: "abc"}}},
		{Fingerprint: "retried", Failed: 3},
	}
	pub := outbox.Publisher{SubscriptionName: outbox.SubscriptionName{Topic: "t", Publisher: "p"}, Status: outbox.PublisherFailed, ErrorCount: 3, ErrorKind: outbox.EventError, ErrorPosition: 7, LastErrorAt: at(time.Second), ErrorEvent: &outbox.EventRef{Position: 7, CampaignID: "c-5", Seq: 3}}
	down, function, unknown := pub, pub, pub
	down.ErrorKind, function.Destination, unknown.ErrorKind, unknown.ErrorEvent = outbox.DestinationError, outbox.FunctionDestination, outbox.UnknownError, nil
	long := pub
	long.FailingSince = at(time.Minute)
	again := pub
	again.Status = outbox.PublisherActive
	facts := outbox.Facts{Groups: outbox.ErrorGroups{Groups: groups}}
	facts.Summary.Campaigns = outbox.CampaignCounts{Total: 60, Blocked: 13, Drifted: 3, Unverifiable: 2, Mismatched: 5}
	facts.Found = []outbox.FoundDrift{{Projection: "seats", Verdict: outbox.VerdictDrift, Since: *at(time.Hour)}, {Projection: "users", Verdict: outbox.VerdictDrift, Since: *at(2 * time.Hour)}, {Projection: "users", Verdict: outbox.VerdictFailed, Since: alertNow}}
	facts.Loaded = []outbox.ProjectionInfo{{Name: "seats", Version: "new1", RowsBuilt: outbox.RowsBuilt{BuiltVersions: []outbox.LoadedVersion{{Version: "old1"}}, BuiltByOtherVersion: true}}}
	for _, c := range []struct {
		what  outbox.AlertWhat
		pub   outbox.Publisher
		since time.Duration
		has   string
	}{
		{outbox.AlertBlocked, pub, time.Hour, "13 of 60 campaigns are blocked by a permanently failed event, with 2 different errors; locked; seats"},
		{outbox.AlertPublisher, pub, time.Second, "Publisher t/p has failed after 3 errors; its destination rejects event 3 of campaign c-5;"},
		{outbox.AlertPublisher, long, time.Minute, "Publisher t/p has failed after 3 errors; its destination rejects event 3 of campaign c-5;"},
		{outbox.AlertPublisher, function, time.Second, "Publisher t/p has failed after 3 errors; its function fails at event 3 of campaign c-5;"},
		{outbox.AlertPublisher, unknown, time.Second, "Publisher t/p has failed after 3 errors; the event at position 7 or its destination is at fault;"},
		{outbox.AlertPublisher, down, time.Second, "Publisher t/p has failed after 3 errors;"},
		{outbox.AlertPublisher, again, time.Second, "Publisher t/p is retried, and has not recovered: 3 errors in a row; its destination rejects event 3 of campaign c-5;"},
		{outbox.AlertDrift, pub, 2 * time.Hour,
			"2 campaigns could not be verified: replaying the events failed; Live rows of 3 campaigns differ from the journal in projections seats and users; ; users"},
	} {
		f := facts
		f.Publishers = []outbox.Publisher{c.pub}
		causes := ruleFor(c.what).Causes(f.Judged(alertNow))
		must.Need(t, len(causes) == 1, "%s: %+v", c.what, causes)
		said := causes[0].Sentence + "; " + causes[0].Error + "; " + causes[0].Projection
		must.Hold(t, alertNow.Sub(causes[0].Since) == c.since && strings.Contains(said, c.has), "%s: since %v, %q", c.what, causes[0].Since, said)
	}
}

func TestAlertRule_saysWhatIsOver(t *testing.T) {
	t.Parallel()
	p := outbox.Publisher{SubscriptionName: outbox.SubscriptionName{Topic: "t", Publisher: "p"}, Status: outbox.PublisherActive}
	delivered, paused, resumed := p, p, p
	delivered.LastErrorAt, paused.Status, resumed.LastPublishedAt = &alertNow, outbox.PublisherPaused, new(alertNow.Add(time.Second))
	facts := func(all ...outbox.Publisher) outbox.Facts {
		return outbox.Facts{Publishers: all, Summary: outbox.Summary{Campaigns: outbox.CampaignCounts{Total: 60}}}
	}
	left := facts()
	left.Summary.Campaigns.Mismatched, left.Summary.Campaigns.Blocked, left.Summary.Lag.Events = 1, 2, 3
	for _, c := range []struct {
		what  outbox.AlertWhat
		facts outbox.Facts
		want  string
	}{
		{outbox.AlertDrift, facts(), "no campaign differs from the journal"},
		{outbox.AlertDrift, left, "1 campaign still differs from the journal"},
		{outbox.AlertBlocked, left, "2 campaigns still blocked"},
		{outbox.AlertOldest, left, "3 events not applied yet"},
		{outbox.AlertNoProgress, facts(), "every event is applied"},
		{outbox.AlertDatabase, left, "the fault t/p is over"},
		{outbox.AlertPublisher, facts(delivered), "publisher t/p delivers again"},
		{outbox.AlertPublisher, facts(paused), "publisher t/p was paused"},
		{outbox.AlertPublisher, facts(resumed), "publisher t/p delivers again"},
		{outbox.AlertPublisher, facts(p), "publisher t/p has nothing left to deliver, after an operator's action"},
		{outbox.AlertPublisher, facts(), "publisher t/p was removed"},
	} {
		must.Equal(t, ruleFor(c.what).Calm(c.facts, outbox.Alert{Cause: outbox.AlertCause{Key: "t/p"}, Since: alertNow}), c.want, c.what)
	}
}

func TestMuteEnd_isOneOfTheSpans(t *testing.T) {
	t.Parallel()
	for _, span := range outbox.AlertMuteSpans {
		end, err := outbox.MuteEnd(span, alertNow)
		must.Hold(t, err == nil && end.Sub(alertNow) >= time.Hour, "%s: until %v, %v", span, end, err)
	}
	for _, span := range []string{"2h", "morning", ""} {
		_, err := outbox.MuteEnd(span, alertNow)
		must.Hold(t, errors.Is(err, outbox.ErrInvalid), "%q: %v", span, err)
	}
}
