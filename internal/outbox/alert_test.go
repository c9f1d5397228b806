package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	waits.DueSince = new(alertNow.Add(-time.Second))
	with := func(change func(*outbox.Summary)) outbox.AlertFacts {
		f := outbox.AlertFacts{Summary: waits, Moved: true}
		change(&f.Summary)
		return f
	}
	silent := outbox.InstanceState{ID: "w-1", Version: "v1", LastSeen: alertNow.Add(-2 * time.Minute), BeatEvery: 5 * time.Second}
	long := silent
	long.LastSeen = alertNow.Add(-61 * time.Minute)
	stalled := outbox.InstanceState{ID: "w-2", LastSeen: alertNow, BeatEvery: 5 * time.Second, Stalled: true, Trouble: "no such table"}
	failed := outbox.Publisher{SubscriptionName: outbox.SubscriptionName{Topic: "t", Publisher: "p"}, Status: outbox.PublisherFailed, ErrorCount: 10, LastError: "answered 500"}
	source := outbox.IntakeSource{Name: "shop", Configured: true, LookedAt: new(alertNow.Add(-time.Minute)), Lease: &outbox.Lease{Owner: "w-1", ExpiresAt: alertNow.Add(time.Second)}}
	sources := func(change func(*outbox.IntakeSource)) outbox.AlertFacts {
		s := source
		change(&s)
		return outbox.AlertFacts{Sources: []outbox.IntakeSource{s}}
	}
	removed := func(s *outbox.IntakeSource) {
		s.Configured, s.Lease, s.Rejected, s.LookedAt = false, nil, 3, new(alertNow.Add(-time.Hour))
	}
	for _, c := range []struct {
		name  string
		what  outbox.AlertWhat
		facts outbox.AlertFacts
		want  string // keys and sentences; empty for none
		error string
	}{
		{"no dead row", outbox.AlertDeadRows, outbox.AlertFacts{}, "", ""},
		{"dead row", outbox.AlertDeadRows, outbox.AlertFacts{Summary: outbox.Summary{Counts: outbox.Counts{Dead: 1}}, Groups: []outbox.ErrorGroup{{Dead: 1, Example: "no such table: x"}}}, "1 row is dead", "no such table: x"},
		{"as many blocked as allowed", outbox.AlertBlocked, with(func(s *outbox.Summary) { s.Campaigns.Blocked = 9 }), "", ""},
		{"one more", outbox.AlertBlocked, with(func(s *outbox.Summary) { s.Campaigns.Blocked = 10 }), "10 campaigns are blocked", ""},
		{"old row", outbox.AlertOldest, outbox.AlertFacts{Summary: waits}, "Event 7 of campaign c-1 has waited for 10 min", ""},
		{"row not old enough", outbox.AlertOldest, with(func(s *outbox.Summary) { s.OldestRetryable = &outbox.Oldest{AgeSeconds: 600} }), "", ""},
		{"old row in shadow mode", outbox.AlertOldest, with(func(s *outbox.Summary) { s.Mode = outbox.ModeShadow }), "", ""},
		{"drift", outbox.AlertDrift, with(func(s *outbox.Summary) { s.Campaigns.Drifted, s.Campaigns.Diverged, s.Campaigns.Mismatched = 1, 2, 3 }), "Read models do not match the journal: 1 campaign drifted, 2 campaigns diverged", ""},
		{"drift and unverifiable", outbox.AlertDrift, with(func(s *outbox.Summary) {
			s.Campaigns.Drifted, s.Campaigns.Unverifiable, s.Campaigns.Mismatched = 25, 6, 28
		}), "Read models do not match the journal: 25 campaigns drifted, 6 campaigns unverifiable, 28 campaigns in all", ""},
		{"unverifiable", outbox.AlertDrift, with(func(s *outbox.Summary) { s.Campaigns.Unverifiable, s.Campaigns.Mismatched = 7, 7 }), "7 campaigns could not be verified: replaying the events failed", ""},
		{"progress", outbox.AlertNoProgress, outbox.AlertFacts{Summary: waits, Moved: true}, "", ""},
		{"no progress", outbox.AlertNoProgress, outbox.AlertFacts{Summary: waits}, "3 events are not applied", "No worker is running: nothing is applied."},
		{"a worker that starts", outbox.AlertNoProgress, outbox.AlertFacts{Summary: func() outbox.Summary { s := waits; s.Worker.Starting = true; return s }()}, "", ""},
		{"between two attempts", outbox.AlertNoProgress, outbox.AlertFacts{Summary: func() outbox.Summary { s := waits; s.DueSince = new(alertNow.Add(time.Minute)); return s }()}, "", ""},
		{"nothing to do", outbox.AlertNoProgress, outbox.AlertFacts{}, "", ""},
		{"publisher", outbox.AlertPublisher, outbox.AlertFacts{Publishers: []outbox.Publisher{failed, {Status: outbox.PublisherActive, UpdatedAt: alertNow}}}, "t/p Publisher t/p has failed after 10 errors", "answered 500"},
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
		{"quarantined projection", outbox.AlertQuarantine, outbox.AlertFacts{Summary: outbox.Summary{Held: []outbox.HeldProjection{{Projection: "badges", Quarantined: 2}, {Projection: "seats", Behind: 1}}},
			Quarantined: []outbox.QuarantineCause{{Projection: "seats", Example: "other"}, {Projection: "badges", Example: "no such column"}}}, "badges Projection badges is quarantined in 2 campaigns", "no such column"},
		{"failed run", outbox.AlertFailedRun, outbox.AlertFacts{FailedRuns: []outbox.Run{{ID: 7, Kind: outbox.RunRebuild, FinishedAt: &alertNow, Error: "1 campaign failed"}, {ID: 5, Kind: outbox.RunRebuild, FinishedAt: &alertNow}}},
			"rebuild Run 7 (rebuild) has failed", "1 campaign failed"},
		{"verify that drift tells of", outbox.AlertFailedRun, outbox.AlertFacts{FailedRuns: []outbox.Run{{ID: 7, Kind: outbox.RunVerify, FinishedAt: &alertNow, Counts: outbox.RunCounts{Failed: 1}}}}, "", ""},
	} {
		var got, err string
		for _, cause := range ruleFor(c.what).Causes(c.facts, alertNow) {
			got, err = strings.TrimSpace(cause.Key+" "+cause.Sentence), cause.Error
		}
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) && !strings.Contains(got, c.want) || err != c.error {
			t.Errorf("%s: found %q (%q), want %q (%q)", c.name, got, err, c.want, c.error)
		}
	}
}

// step is a moment in the life of a cause: after so long, found or not, and what is sent then.
type alertMoment struct {
	after time.Duration
	found bool
	muted bool
	want  outbox.AlertKind
	is    outbox.AlertStatus
}

func TestAlert_sendsOneMessageAnHour(t *testing.T) {
	t.Parallel()
	const none = outbox.AlertNoMessage
	m := time.Minute
	for name, moments := range map[string][]alertMoment{
		"a problem that goes on and ends": {
			{0, true, false, none, outbox.AlertPending}, {m, true, false, none, outbox.AlertPending}, {m, true, false, outbox.AlertStarted, outbox.AlertFiring},
			{m, true, false, none, outbox.AlertFiring}, {58 * m, true, false, none, outbox.AlertFiring}, {m, true, false, outbox.AlertReminder, outbox.AlertFiring},
			{m, false, false, outbox.AlertResolved, outbox.AlertOK}, {m, false, false, none, outbox.AlertOK},
		},
		"one that is over before it held": {
			{0, true, false, none, outbox.AlertPending}, {m, false, false, none, outbox.AlertOK}, {m, true, false, none, outbox.AlertPending}, {m, true, false, none, outbox.AlertPending},
		},
		"one that flaps": {
			{0, true, false, none, outbox.AlertPending}, {m, true, false, none, outbox.AlertPending}, {m, true, false, outbox.AlertStarted, outbox.AlertFiring},
			{m, false, false, outbox.AlertResolved, outbox.AlertOK},
			{m, true, false, none, outbox.AlertPending}, {m, true, false, none, outbox.AlertPending}, {m, true, false, outbox.AlertStarted, outbox.AlertFiring},
			{m, false, false, outbox.AlertResolved, outbox.AlertOK},
			{m, true, false, none, outbox.AlertPending}, {m, true, false, none, outbox.AlertPending}, {m, true, false, outbox.AlertStarted, outbox.AlertFiring},
			{m, false, false, none, outbox.AlertFiring}, {9 * m, true, false, none, outbox.AlertFiring}, {9 * m, true, false, none, outbox.AlertFiring},
			{m, true, false, outbox.AlertReminder, outbox.AlertFiring}, {10 * m, true, false, none, outbox.AlertFiring}, // it stays
			{m, false, false, none, outbox.AlertFiring}, {9 * m, false, false, none, outbox.AlertFiring}, {m, false, false, outbox.AlertResolved, outbox.AlertOK}, // it is over
		},
		"a clock that is set ahead": {
			{0, true, false, none, outbox.AlertPending}, {48 * time.Hour, true, false, none, outbox.AlertPending}, {m, true, false, outbox.AlertStarted, outbox.AlertFiring},
		},
		"a clock that is set back": {
			{0, true, false, none, outbox.AlertPending}, {m, true, false, none, outbox.AlertPending}, {m, true, false, outbox.AlertStarted, outbox.AlertFiring},
			{-48 * time.Hour, true, false, none, outbox.AlertFiring}, {59 * m, true, false, none, outbox.AlertFiring}, {m, true, false, outbox.AlertReminder, outbox.AlertFiring},
		},
		"a mute": {
			{0, true, true, none, outbox.AlertPending}, {m, true, true, none, outbox.AlertPending}, {m, true, true, none, outbox.AlertFiring},
			{m, true, false, outbox.AlertStarted, outbox.AlertFiring}, {61 * m, true, true, none, outbox.AlertFiring}, {m, false, true, outbox.AlertResolved, outbox.AlertOK},
		},
	} {
		a, now := outbox.Alert{Rule: "r"}, alertNow
		rule := outbox.AlertRule{Name: "r", For: 2 * m}
		for i, at := range moments {
			now = now.Add(at.after)
			var cause *outbox.AlertCause
			if at.found {
				cause = &outbox.AlertCause{Count: int64(i)}
			}
			var kind outbox.AlertKind
			hush := outbox.AlertHush{}
			if at.muted {
				hush.Muted = now.Add(time.Hour)
			}
			if a, kind, _ = a.Next(rule, cause, hush, now); kind != at.want || a.Status != at.is {
				t.Fatalf("%s, moment %d: %q in state %q, want %q in %q", name, i, kind, a.Status, at.want, at.is)
			}
			if a.Since.After(now) {
				t.Errorf("%s, moment %d: since %v, in the future of %v", name, i, a.Since, now)
			}
		}
	}
}

// causesMoment is a moment in the life of a rule that finds causes by name, what is sent then, and what
// is held back.
type causesMoment struct {
	after time.Duration
	found string // the names, separated by spaces; empty for none
	quiet time.Duration
	want  outbox.AlertKind
	other int // causes that the message adds
	held  outbox.AlertHold
	until time.Duration // from the beginning
}

// Each cause is told at once, and so is one that comes back after a message that it was over. After two of
// these within an hour the next one is held back. A cause that comes back while others go on is held back
// for its hour.
func TestAlert_tellsEachCauseOnceAnHour(t *testing.T) {
	t.Parallel()
	const none, m = outbox.AlertNoMessage, time.Minute
	storm := []causesMoment{{0, "e0", 0, outbox.AlertStarted, 0, "", 0}}
	for i := 1; i < 10; i++ {
		storm = append(storm, causesMoment{m, fmt.Sprint("e", i), 0, outbox.AlertStarted, 1, "", 0})
	}
	storm = append(storm, causesMoment{m, "e10", 0, none, 0, outbox.AlertHeldLimit, 60 * m}, causesMoment{49 * m, "e11", 0, none, 0, outbox.AlertHeldLimit, 60 * m},
		causesMoment{m, "e12 e13", 0, outbox.AlertStarted, 2, "", 0})
	for name, moments := range map[string][]causesMoment{
		"an incident with another cause after the end of one": {
			{0, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0}, {m, "b", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0},
		},
		"an incident with the same cause": {
			{0, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0},
			{m, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0},
			{m, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, none, 0, outbox.AlertHeldFlaps, 15 * m}, {m, "a", 0, none, 0, "", 0},
			{m, "a b", 0, outbox.AlertStarted, 1, "", 0}, {13 * m, "", 0, none, 0, outbox.AlertHeldFlaps, 30 * m}, {10 * m, "", 0, outbox.AlertResolved, 0, "", 0},
		},
		"incidents with different causes": {
			{0, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0}, {m, "b", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0},
			{m, "c", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0}, {m, "a d", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0},
			{m, "d e", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0},
			{m, "f", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, none, 0, outbox.AlertHeldFlaps, 21 * m}, // five were told to be over
		},
		"another incident while the end of one is held back": {
			{0, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0}, {m, "b", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0},
			{m, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0}, {m, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "", 0, none, 0, outbox.AlertHeldFlaps, 17 * m},
			{m, "b", 0, outbox.AlertStarted, 1, "", 0}, {m, "", 0, outbox.AlertResolved, 0, "", 0},
		},
		"one that flaps in a quiet time": {
			{0, "a", 9 * m, outbox.AlertStarted, 0, outbox.AlertHeldQuiet, 9 * m}, {m, "", 8 * m, outbox.AlertResolved, 0, "", 0}, {m, "a", 7 * m, outbox.AlertStarted, 0, outbox.AlertHeldQuiet, 9 * m},
			{m, "", 6 * m, outbox.AlertResolved, 0, "", 0}, {m, "a", 5 * m, outbox.AlertStarted, 0, outbox.AlertHeldQuiet, 9 * m}, {m, "", 4 * m, outbox.AlertResolved, 0, "", 0},
		},
		"other causes within an incident": {
			{0, "a", 0, outbox.AlertStarted, 0, "", 0}, {m, "a b", 0, outbox.AlertStarted, 1, "", 0}, {m, "b a", 0, none, 0, "", 0}, {m, "c d e", 0, outbox.AlertStarted, 3, "", 0},
			{57 * m, "c", 0, none, 0, "", 0}, {3 * m, "c", 0, outbox.AlertReminder, 0, "", 0},
		},
		"a cause that is back within an incident": {
			{0, "a b", 0, outbox.AlertStarted, 0, "", 0}, {m, "b c", 0, outbox.AlertStarted, 1, "", 0}, {m, "a c", 0, none, 0, outbox.AlertHeldTold, 60 * m}, {58 * m, "a c", 0, outbox.AlertStarted, 1, "", 0},
		},
		"errors without end": storm,
		"a quiet time": {
			{m, "a", 60 * m, outbox.AlertStarted, 0, outbox.AlertHeldQuiet, 61 * m}, {m, "a", 59 * m, none, 0, outbox.AlertHeldQuiet, 61 * m},
			{m, "a b", 58 * m, outbox.AlertStarted, 0, outbox.AlertHeldQuiet, 61 * m}, {m, "", 57 * m, outbox.AlertResolved, 0, "", 0},
			{m, "a", 56 * m, outbox.AlertStarted, 0, outbox.AlertHeldQuiet, 61 * m}, // none of these was sent
			{56 * m, "a", 0, none, 0, "", 0}, {m, "a c", 0, outbox.AlertStarted, 1, "", 0},
		},
	} {
		a, now := outbox.Alert{Rule: "r"}, alertNow
		rule := outbox.AlertRule{Name: "r"}
		for i, at := range moments {
			now = now.Add(at.after)
			var cause *outbox.AlertCause
			if at.found != "" {
				cause = &outbox.AlertCause{}
				for _, key := range strings.Fields(at.found) {
					cause.Parts = append(cause.Parts, outbox.AlertPart{Key: key})
				}
			}
			var hush outbox.AlertHush
			if at.quiet > 0 {
				hush.Quiet = now.Add(at.quiet)
			}
			var kind outbox.AlertKind
			var others []outbox.AlertPart
			a, kind, others = a.Next(rule, cause, hush, now)
			until := time.Duration(0)
			if a.HeldUntil != nil {
				until = a.HeldUntil.Sub(alertNow)
			}
			if kind != at.want || len(others) != at.other || a.HeldBecause != at.held || until != at.until {
				t.Fatalf("%s, moment %d: %q with %d others, held back %q until %v; want %q with %d, %q until %v", name, i, kind, len(others), a.HeldBecause, until, at.want, at.other, at.held, at.until)
			}
			if kind != none && !a.SentAt.Equal(now) {
				t.Errorf("%s, moment %d: the last message was at %v", name, i, a.SentAt)
			}
		}
	}
}

// What lingers is the incident that was told, and what is told once is not told again when it stays.
func TestAlert_thatComesAndGoesIsStillTheSame(t *testing.T) {
	t.Parallel()
	part := []outbox.AlertPart{{Key: "event 7"}}
	for name, back := range map[string]outbox.AlertCause{"lingers": {Lingers: true}, "once": {Once: true, Parts: part}} {
		a, now, rule := outbox.Alert{}, alertNow, outbox.AlertRule{}
		pass := func(cause *outbox.AlertCause, after time.Duration) (kind outbox.AlertKind) {
			now = now.Add(after)
			a, kind, _ = a.Next(rule, cause, outbox.AlertHush{}, now)
			return kind
		}
		for range 3 {
			pass(&outbox.AlertCause{Parts: part}, time.Minute)
			pass(nil, time.Minute)
		}
		since := a.Since
		pass(&back, time.Minute)
		if !a.Since.Equal(since) || !a.Told {
			t.Errorf("%s: it began anew at %v", name, a.Since)
		}
		if kind := pass(&back, 10*time.Minute); back.Once && kind != outbox.AlertNoMessage {
			t.Errorf("%s: sent %q", name, kind)
		}
	}
}

// An urgent incident that has doubled is told again within the hour.
func TestAlert_tellsThatAnUrgentIncidentHasDoubled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   outbox.AlertWhat
		urgent bool
		want   string // the counts that are told
	}{
		{outbox.AlertBlocked, true, "25 60 200"},
		{outbox.AlertBlocked, false, "25"},
		{outbox.AlertNoProgress, true, "25"}, // every append adds to it
	} {
		a, now, rule := outbox.Alert{}, alertNow, outbox.AlertRule{What: c.what, Urgent: c.urgent}
		var told []string
		for _, n := range []int64{25, 49, 60, 119, 30, 200} {
			now = now.Add(time.Minute)
			var kind outbox.AlertKind
			if a, kind, _ = a.Next(rule, &outbox.AlertCause{Count: n}, outbox.AlertHush{}, now); kind != outbox.AlertNoMessage {
				told = append(told, fmt.Sprint(n))
			}
		}
		if got := strings.Join(told, " "); got != c.want {
			t.Errorf("%s, urgent %v: told of %s, want %s", c.what, c.urgent, got, c.want)
		}
	}
}

// Rules that name what is behind a cause tell one from another, and know since when.
func TestAlertRules_knowWhatIsBehindACause(t *testing.T) {
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
	facts := outbox.AlertFacts{Groups: groups}
	facts.Summary.Campaigns = outbox.CampaignCounts{Blocked: 13, Drifted: 3, Unverifiable: 2, Mismatched: 5}
	facts.Found = []outbox.FoundDrift{{Projection: "seats", Verdict: outbox.VerdictDrift, Since: *at(time.Hour)}, {Projection: "users", Verdict: outbox.VerdictDrift, Since: *at(2 * time.Hour)}, {Projection: "users", Verdict: outbox.VerdictFailed, Since: alertNow}}
	facts.OtherBuilt = []outbox.ProjectionInfo{{Name: "seats", Version: "new1", RowsBuilt: outbox.RowsBuilt{BuiltVersions: []outbox.LoadedVersion{{Version: "old1"}}, BuiltByOtherVersion: true}}}
	for _, c := range []struct {
		what  outbox.AlertWhat
		pub   outbox.Publisher
		parts string
		since time.Duration
		has   string
	}{
		{outbox.AlertBlocked, pub, "locked, no such table", time.Hour, "13 campaigns are blocked by a permanently failed event, with 2 different errors; locked; seats"},
		{outbox.AlertPublisher, pub, "event 7", time.Second, "Publisher t/p has failed after 3 errors; its destination rejects event 3 of campaign c-5;"},
		{outbox.AlertPublisher, long, "event 7", time.Minute, "Publisher t/p has failed after 3 errors; its destination rejects event 3 of campaign c-5;"},
		{outbox.AlertPublisher, function, "event 7", time.Second, "Publisher t/p has failed after 3 errors; its function fails at event 3 of campaign c-5;"},
		{outbox.AlertPublisher, unknown, "event 7", time.Second, "Publisher t/p has failed after 3 errors; the event at position 7 or its destination is at fault;"},
		{outbox.AlertPublisher, down, "destination", time.Second, "Publisher t/p has failed after 3 errors;"},
		{outbox.AlertPublisher, again, "event 7", time.Second, "Publisher t/p is retried, and has not recovered: 3 errors in a row; its destination rejects event 3 of campaign c-5;"},
		{outbox.AlertDrift, pub, "drift seats, drift users, failed users", 2 * time.Hour,
			"3 campaigns drifted in projections seats and users, 2 campaigns unverifiable; Rows of projection seats were built by version old1. Version new1 is loaded now, and builds what is applied since then. Rows may differ because the definition changed."},
	} {
		f := facts
		f.Publishers = []outbox.Publisher{c.pub}
		causes := ruleFor(c.what).Causes(f, alertNow)
		if len(causes) != 1 {
			t.Fatalf("%s: %+v", c.what, causes)
		}
		var parts []string
		for _, p := range causes[0].Parts {
			parts = append(parts, p.Key)
		}
		said := causes[0].Sentence + "; " + causes[0].Error + "; " + causes[0].Projection
		if got := strings.Join(parts, ", "); got != c.parts || alertNow.Sub(causes[0].Since) != c.since || !strings.Contains(said, c.has) {
			t.Errorf("%s: %q since %v, %q", c.what, got, causes[0].Since, said)
		}
	}
}

// What a rule says when its cause is over is what it decides on.
func TestAlertRule_saysWhatIsOver(t *testing.T) {
	t.Parallel()
	p := outbox.Publisher{SubscriptionName: outbox.SubscriptionName{Topic: "t", Publisher: "p"}, Status: outbox.PublisherActive}
	delivered, paused, resumed := p, p, p
	delivered.LastErrorAt, paused.Status, resumed.LastPublishedAt = &alertNow, outbox.PublisherPaused, new(alertNow.Add(time.Second))
	facts := func(all ...outbox.Publisher) outbox.AlertFacts {
		return outbox.AlertFacts{Publishers: all, Summary: outbox.Summary{Campaigns: outbox.CampaignCounts{Total: 60}}}
	}
	left := facts()
	left.Summary.Campaigns.Mismatched, left.Summary.Campaigns.Blocked, left.Summary.Lag.Events = 1, 2, 3
	for _, c := range []struct {
		what  outbox.AlertWhat
		facts outbox.AlertFacts
		want  string
	}{
		{outbox.AlertDrift, facts(), "no campaign differs from the journal"},
		{outbox.AlertDrift, left, "1 campaign still differs from the journal"},
		{outbox.AlertBlocked, left, "2 campaigns still blocked"},
		{outbox.AlertOldest, left, "3 events not applied yet"},
		{outbox.AlertNoProgress, facts(), "every event is applied"},
		{outbox.AlertPublisher, facts(delivered), "publisher t/p delivers again"},
		{outbox.AlertPublisher, facts(paused), "publisher t/p was paused"},
		{outbox.AlertPublisher, facts(resumed), "publisher t/p delivers again"},
		{outbox.AlertPublisher, facts(p), "publisher t/p has nothing left to deliver, after an operator's action"},
		{outbox.AlertPublisher, facts(), "publisher t/p was removed"},
	} {
		if got := ruleFor(c.what).Calm(c.facts, outbox.Alert{Cause: outbox.AlertCause{Key: "t/p"}, Since: alertNow}); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestQuietTimes_endInTheZoneTheyAreWrittenIn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		times, at, want string // empty: not quiet
	}{
		{"22:00-07:00", "2026-11-21T20:59:00Z", ""},
		{"22:00-07:00", "2026-11-21T21:00:00Z", "2026-11-22T06:00:00Z"}, // Berlin is at UTC+1
		{"22:00-07:00", "2026-11-22T05:59:59Z", "2026-11-22T06:00:00Z"},
		{"22:00-07:00", "2026-11-22T06:00:00Z", ""},
		{"22:00-07:00", "2026-03-28T22:00:00Z", "2026-03-29T05:00:00Z"},     // the night with an hour less
		{"22:00-07:00", "2026-10-24T21:00:00Z", "2026-10-25T06:00:00Z"},     // the one with an hour more
		{"02:30-03:30", "2026-03-29T01:15:00Z", ""},                         // begins at a time that does not exist, and is empty
		{"fri 22:00-07:00", "2026-11-21T05:00:00Z", "2026-11-21T06:00:00Z"}, // begun on Friday
		{"fri 22:00-07:00", "2026-11-21T22:00:00Z", ""},
		{"sat,sun 00:00-24:00", "2026-11-21T12:00:00Z", "2026-11-22T23:00:00Z"},
		{"fri-mon 20:00-08:00|sat,sun 08:00-20:00", "2026-11-20T19:30:00Z", "2026-11-23T07:00:00Z"}, // times that touch
		{"sun-sat 00:00-24:00", "2026-11-21T12:00:00Z", "2026-12-04T23:00:00Z"},                     // always: two weeks
	} {
		q, err := outbox.ParseQuiet("Europe/Berlin", strings.Split(c.times, "|"))
		if err != nil {
			t.Fatal(err)
		}
		at, _ := time.Parse(time.RFC3339, c.at)
		got := ""
		if end := q.Until(at); !end.IsZero() {
			got = end.Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("%s at %s ends at %q, want %q", c.times, c.at, got, c.want)
		}
	}
	for _, text := range []string{"", "22:00", "22:00-25:00", "22:60-23:00", "22:00-22:00", "24:00-07:00", "day 22:00-07:00", "mon- 22:00-07:00", "22-7", "-1:00-07:00"} {
		if _, err := outbox.ParseQuiet("UTC", []string{text}); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("%q passes for a time: %v", text, err)
		}
	}
	for _, zone := range []string{"Mars/Base", "Local", "../etc/passwd"} {
		if _, err := outbox.ParseQuiet(zone, nil); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("%q passes for a time zone: %v", zone, err)
		}
	}
}

func TestMuteEnd_isTheNextMorning(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{"2026-11-21T06:59:00Z": "2026-11-21T07:00:00Z", "2026-11-21T07:00:00Z": "2026-11-22T07:00:00Z", "2026-10-24T12:00:00Z": "2026-10-25T07:00:00Z"} {
		now, _ := time.Parse(time.RFC3339, at)
		if end, err := outbox.MuteEnd("morning", berlin, now); err != nil || end.Format(time.RFC3339) != want {
			t.Errorf("from %s until %v, %v, want %s", at, end, err, want)
		}
	}
	if _, err := outbox.MuteEnd("2h", berlin, alertNow); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("2h: %v", err)
	}
}
