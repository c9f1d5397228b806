package alerts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

func TestWorker_tellsOfAProblemItsGrowthAndItsEnd(t *testing.T) {
	w, f := told(t)
	f.dead(0)
	f.pass(time.Minute)
	f.dead(3)
	f.pass(6 * time.Minute)
	must.Need(t, w.kinds() == "firing", "sent %q", w.kinds())
	m := w.got[0]
	must.Hold(t, m.Title == "3 rows are dead" && m.Count == 3 && m.Rule == "dead_rows" && m.Build == "v8" && m.Projection == "campaigns" && m.ProjectionVersion == "abc" &&
		m.RunbookURL == "https://ops.example/docs/operating#dead-heads-grow" && m.ConsoleURL == "https://ops.example/failures#" && m.Since != nil && m.Todo != "", "sent %+v", m)
	must.Hold(t, !strings.Contains(w.bodies[0], "hunter2") && strings.Contains(m.Error, "refused"), "sent the error %q", m.Error)
	h := w.heads[0]
	must.Hold(t, h.Get("Webhook-Id") == m.ID && strings.HasPrefix(h.Get("Webhook-Signature"), "v1,") && h.Get("User-Agent") == "outboxweb/v9", "headers %v", h)
	f.dead(5)
	f.pass(time.Minute)
	must.Need(t, w.kinds() == "firing reminder" && w.got[1].Before != nil && *w.got[1].Before == 3 && w.got[1].Count == 5, "sent %q: %+v", w.kinds(), w.got[len(w.got)-1])
	f.dead(6)
	f.step()
	f.dead(0)
	f.pass(5 * time.Minute)
	said := strings.Join(w.got[2].Lines(f.Clock.Now()), "; ")
	must.Hold(t, strings.Contains(said, "Changed: 6 before it was over, 5 in the last message"), "at the end it says %q", said)
	m = w.got[2]
	must.Need(t, w.kinds() == "firing reminder resolved" && strings.HasPrefix(m.Title, "Resolved after 7 min: no row is dead") && m.Count == 0 && *m.Ended == 6 && *m.Before == 5, "sent %q: %+v", w.kinds(), m)
	v, err := f.View(f.Ctx)
	must.Need(t, err == nil && len(v.Messages) == 3 && v.Messages[0].Status == "sent" && v.Receivers[0].SentAt != nil && v.Receivers[0].Waiting == 0 && v.Evaluator == "w-1", "view %+v, %v", v, err)
	shown := v.Receivers[0].Destination
	must.Hold(t, !strings.Contains(shown, "hook?") && !strings.Contains(shown, "s3cret"), "shows %q", shown)
}

// What another process found, and told, is known to the next one.
func TestWorker_goesOnWithWhatAnotherProcessTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := hook(w)
	f := open(t, config)
	f.dead(25)
	f.pass(6 * time.Minute)
	f.dead(0)
	f.step()
	two := around(f.Beside(), "w-2", config)
	two.dead(0)
	f.Clock.Advance(2 * time.Minute) // the lease of the first expires
	two.step()
	two.dead(30)
	two.pass(time.Minute)
	must.Need(t, w.kinds() == "firing", "sent %q while it came and went", w.kinds())
	two.dead(40)
	two.step()
	two.dead(0)
	two.pass(5 * time.Minute)
	last := w.got[len(w.got)-1]
	must.Hold(t, w.kinds() == "firing reminder resolved" && *last.Ended == 40 && w.got[1].Title == "Still: 40 of 40 campaigns are blocked by a permanently failed event" && *w.got[1].Before == 25, "sent %q: %+v", w.kinds(), w.got)
}

// Dead rows and the campaigns that they block are one incident: what is left of it once the number is allowed
// again is told then, and who is told of one of them only is told of that.
func TestWorker_tellsAnIncidentOnce(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	rules := func(to string) string {
		return strings.Replace(hook(w, `dead_rows: {to: [hook`+to+`]}`), "receivers: {", `receivers: {other: {url: "`+other.URL+`", allow_private: true}, `, 1)
	}
	f := open(t, rules(""))
	titles := func(w *world) (all string) {
		for _, m := range w.got {
			all += m.Title + "; "
		}
		return all
	}
	f.dead(12)
	f.pass(7 * time.Minute)
	must.Equal(t, titles(w), "12 of 40 campaigns are blocked by a permanently failed event; ")
	f.dead(4)
	f.pass(4 * time.Minute)
	must.Equal(t, titles(w), "12 of 40 campaigns are blocked by a permanently failed event; ")
	f.pass(3 * time.Minute)
	must.Hold(t, strings.Contains(titles(w), "; 4 rows are dead; ") && strings.Contains(titles(w), "; Resolved after "), "sent %q", titles(w))
	f = open(t, rules(", other"))
	f.dead(12)
	f.pass(7 * time.Minute)
	must.Equal(t, titles(other), "12 rows are dead; ")
	last := newWorld(t)
	f = open(t, hook(last, `blocked_campaigns: {for: 1h}`))
	f.dead(12)
	f.pass(7 * time.Minute)
	must.Equal(t, titles(last), "12 rows are dead; ", "which is not told an hour late")
}

// A number begins to be too high when it is exceeded, not when the first of what it counts came to be.
func TestWorker_beginsWhenANumberIsExceeded(t *testing.T) {
	w, f := told(t, `dead_rows: {over: 2}, blocked_campaigns: off`)
	dead := func(n int64) {
		f.dead(n)
		f.facts.Groups.Groups = []campaign.ErrorGroup{{Fingerprint: "x", Dead: n, Example: "x", FirstAt: new(f.Clock.Now().Add(-3 * time.Hour))}}
	}
	dead(2)
	f.pass(10 * time.Minute)
	exceeded := f.Clock.Now()
	dead(3)
	f.step()
	f.pass(10 * time.Minute)
	must.Need(t, w.kinds() == "firing" && w.got[0].Since.Sub(exceeded).Abs() <= time.Minute, "sent %q: since %v, want about %v", w.kinds(), w.got[0].Since, exceeded)
}

// Many causes at once become one message, which is as urgent as they are.
func TestWorker_sumsUpManyCausesAtOnce(t *testing.T) {
	w, f := told(t, `publisher: {for: 0, urgent: true}`)
	f.facts.Moved = true
	for i := range 50 {
		f.facts.Publishers = append(f.facts.Publishers, subscription.Publisher{SubscriptionName: operator.SubscriptionName{Topic: "t", Publisher: fmt.Sprint("p", i)}, Status: subscription.PublisherFailed, ErrorCount: 8, ErrorKind: operator.DestinationError})
	}
	f.pass(time.Minute)
	must.Hold(t, w.kinds() == "summary" && len(w.got[0].Messages) == 50 && w.got[0].Title == "50 messages at once: 50 open, 0 resolved" && w.got[0].Urgent, "sent %q: %+v", w.kinds(), w.got)
}

func TestWorker_keepsTheLatestForAReceiverThatIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.answer(http.StatusServiceUnavailable)
	f := open(t, hook(w))
	f.dead(3)
	f.pass(70 * time.Minute)
	v := must.Get(f.View(f.Ctx)).Or(t)
	r := v.Receivers[0]
	must.Hold(t, r.Failures >= 5 && r.Failures <= 20 && r.RetryAt != nil && r.Waiting == 1 && strings.Contains(r.LastError, "503") && !strings.Contains(r.LastError, "hunter2"), "receiver %+v", r)
	f.dead(0)
	f.pass(6 * time.Minute)
	w.answer(0)
	f.pass(6 * time.Minute)
	must.Equal(t, w.kinds(), "resolved", "sent")
}

// A publisher that failed and is retried has not recovered until it delivers without an error. Since is when it began, not when it was
// found; an error after a delivery begins anew. What to do depends on what is at fault.
func TestWorker_tellsThatAPublisherRecoveredWhenItDelivers(t *testing.T) {
	w, f := told(t, `publisher: {for: 0}`)
	p := subscription.Publisher{SubscriptionName: operator.SubscriptionName{Topic: "orders", Publisher: "erp"}, UpdatedAt: f.Clock.Now().Add(time.Hour)}
	state := func(status subscription.PublisherStatus, errors int, kind operator.DeliveryErrorKind, position int64) {
		p.Status, p.ErrorCount, p.ErrorKind, p.ErrorPosition, p.ErrorEvent = status, errors, kind, position, &event.EventRef{CampaignID: "password=hunter2hunter2", Seq: position}
		f.facts = facts.Facts{Moved: true, Publishers: []subscription.Publisher{p}}
		f.pass(30 * time.Second)
	}
	began := f.Clock.Now().Add(-10 * time.Second)
	p.LastErrorAt = &began
	state(subscription.PublisherFailed, 8, operator.DestinationError, 5)
	must.Need(t, w.kinds() == "firing" && w.got[0].Since.Equal(began) && w.got[0].Todo == "Fix the destination, test it, then resume the publisher.", "at the first error: sent %+v", w.got)
	delivered := f.Clock.Now()
	rejected := delivered.Add(time.Second)
	p.LastPublishedAt, p.LastErrorAt = &delivered, &rejected
	f.Clock.Advance(15 * time.Second)
	state(subscription.PublisherActive, 3, operator.EventError, 7) // it delivered two events, and is stuck again
	v := must.Get(f.View(f.Ctx)).Or(t)
	i := slices.IndexFunc(v.Rules, func(r alerts.AlertRuleState) bool { return r.Name == "publisher" })
	a := v.Rules[i].Alerts[0]
	must.Need(t, w.kinds() == "firing" && a.Since.Equal(rejected) && strings.HasSuffix(a.Cause.Sentence, "3 errors in a row; its destination rejects event 7 of campaign password=[redacted]"), "while it is retried: sent %q, shows %+v", w.kinds(), a)
	p.LastErrorAt = new(f.Clock.Now())
	state(subscription.PublisherFailed, 8, operator.EventError, 7)
	f.Clock.Advance(alerts.AlertAgain)
	f.step()
	m := w.got[len(w.got)-1]
	must.Hold(t, w.kinds() == "firing reminder" && m.Title == "Still: Publisher orders/erp has failed after 8 errors; its destination rejects event 7 of campaign password=[redacted]" && m.Since.Equal(rejected) &&
		strings.HasPrefix(m.Todo, "Have the receiver fixed for this event, or skip the event.") && m.RunbookURL == "https://ops.example/docs/operating#one-event-is-rejected", "a day later: sent %q, %+v", w.kinds(), m)
	state(subscription.PublisherActive, 0, operator.EventError, 0)
	must.Hold(t, w.kinds() == "firing reminder resolved" && strings.HasSuffix(w.got[2].Title, ": publisher orders/erp delivers again"), "at the end: sent %+v", w.got)
}

// moment changes what is found. After so long, the messages are of these kinds, and the last one says this.
type moment struct {
	change      func(*fixture)
	lasts       time.Duration
	kinds, says string
}

// subscribed is a publisher that delivered long ago, with so many errors in a row.
func subscribed(status subscription.PublisherStatus, errors int, more ...func(*subscription.Publisher, time.Time)) func(*fixture) {
	return func(f *fixture) {
		p := subscription.Publisher{SubscriptionName: operator.SubscriptionName{Topic: "all", Publisher: "hook"}, LagEvents: 300, Status: status, ErrorCount: errors, LastPublishedAt: new(storetest.Began.Add(-time.Hour))}
		if errors > 0 {
			p.ErrorKind, p.LastErrorAt = operator.DestinationError, new(f.Clock.Now())
		}
		for _, change := range more {
			change(&p, f.Clock.Now())
		}
		f.facts = facts.Facts{Moved: true, Publishers: []subscription.Publisher{p}}
	}
}

// silent is an instance that is silent for so long, and for three hours more.
func silent(before time.Duration, kinds string) []moment {
	return []moment{{func(f *fixture) {
		f.facts.Moved = true
		f.facts.Summary.Instances = []campaign.InstanceState{{ID: "w-9", BeatEvery: 5 * time.Second, LastSeen: f.Clock.Now().Add(-before)}}
	}, 5 * time.Minute, kinds, ""}, {func(f *fixture) {
		for range 3 {
			f.Clock.Advance(time.Hour)
			f.step()
		}
	}, 0, kinds, ""}}
}

func held(all ...campaign.HeldProjection) func(*fixture) {
	return func(f *fixture) { f.facts = facts.Facts{Moved: true, Summary: campaign.Summary{Held: all}} }
}

func failedRuns(ids ...int64) func(*fixture) {
	return func(f *fixture) {
		f.facts = facts.Facts{Moved: true}
		for _, id := range ids {
			f.facts.Runs = append(f.facts.Runs, replay.Run{ID: id, Kind: replay.RunRebuild, Status: replay.RunFailed, FinishedAt: new(storetest.Began)})
		}
	}
}

func TestWorker_tellsOfEachTroubleUntilItIsOver(t *testing.T) {
	t.Parallel()
	const at, short = "https://ops.example/", 30 * time.Second
	// An operator who clears a publisher's errors has not made it deliver: it recovers with a delivery, or when nothing is left to deliver.
	publisher := func(says string, status subscription.PublisherStatus, end func(*subscription.Publisher, time.Time)) []moment {
		return []moment{{subscribed(subscription.PublisherFailed, 4), short, "firing", ""}, {subscribed(subscription.PublisherActive, 0), short, "firing", ""}, {subscribed(subscription.PublisherActive, 1), short, "firing", ""},
			{subscribed(subscription.PublisherFailed, 4), short, "firing", ""}, {subscribed(subscription.PublisherActive, 0), short, "firing", ""}, {subscribed(status, 0, end), short, "firing resolved", says}}
	}
	// An instance is over when it is back, was stopped, or is not listed any more; one that was silent long before is not told.
	instance := func(says string, end func(*fixture, []campaign.InstanceState)) []moment {
		return append(silent(2*time.Minute, "firing"), moment{func(f *fixture) { end(f, f.facts.Summary.Instances) }, 3 * time.Minute, "firing resolved", says})
	}
	read := func(f *fixture, name string, rejected int64) inbound.IntakeSource {
		return inbound.IntakeSource{Name: name, Configured: true, Rejected: rejected, Lease: &campaign.Lease{Owner: "w-1", ExpiresAt: f.Clock.Now().Add(24 * time.Hour)}}
	}
	for name, moments := range map[string][]moment{
		"a publisher that delivers":              publisher("publisher all/hook delivers again", subscription.PublisherActive, func(p *subscription.Publisher, now time.Time) { p.LastPublishedAt = &now }),
		"a publisher whose position is moved":    publisher("publisher all/hook has nothing left to deliver, after an operator's action", subscription.PublisherActive, func(p *subscription.Publisher, _ time.Time) { p.LagEvents = 0 }),
		"a publisher that is paused":             publisher("publisher all/hook was paused", subscription.PublisherPaused, func(*subscription.Publisher, time.Time) {}),
		"an instance that is back":               instance("no longer silent or stalled", func(f *fixture, all []campaign.InstanceState) { all[0].LastSeen = f.Clock.Now().Add(time.Hour) }),
		"an instance that was stopped":           instance("was stopped", func(f *fixture, all []campaign.InstanceState) { all[0].StoppedAt = new(f.Clock.Now()) }),
		"an instance that is forgotten":          instance("is forgotten", func(f *fixture, _ []campaign.InstanceState) { f.facts.Summary.Instances = nil }),
		"an instance that was silent for longer": silent(61*time.Minute, ""),
		"a quarantine, while projections cannot be read": {{held(campaign.HeldProjection{Projection: "badges", Quarantined: 1}), short, "firing", "quarantine badges: "}, {held(), short, "firing", at + "docs/operating#a-projection-is-quarantined"},
			{held([]campaign.HeldProjection{}...), short, "firing resolved", "projection badges is not quarantined in any campaign"}},
		"runs of a kind, until one completes": {{failedRuns(7), time.Minute, "firing", "rebuild: Run 7 (rebuild) has failed"}, {failedRuns(9, 7), time.Minute, "firing", ""},
			{func(f *fixture) { f.Clock.Advance(alerts.AlertAgain) }, time.Minute, "firing reminder", "Still: Run 9 (rebuild) has failed"}, {failedRuns(), time.Minute, "firing reminder resolved", "the failed rebuild run was resumed or repeated"}},
		"each source by itself": {
			{func(f *fixture) {
				f.facts = facts.Facts{Moved: true, Sources: []inbound.IntakeSource{read(f, "billing", 0), read(f, "shop", 2)}}
			}, 5 * time.Minute, "firing", "rejected_rows shop: 2 rows of source shop are rejected, and each blocks its campaign " + at + "docs/intake#rejected-rows " + at + "intake/shop# 2 "},
			{func(f *fixture) {
				f.facts.Sources[0].Lease, f.facts.Sources[0].Error, f.facts.Sources[1].Rejected = nil, "connection refused", 0
			}, 3 * time.Minute, "firing resolved firing", "source billing: Source billing cannot be read " + at + "docs/intake#a-source-is-not-read"},
			{func(f *fixture) { f.facts.Sources[0] = read(f, "billing", 0) }, 2 * time.Minute, "firing resolved firing resolved", "source billing is read again"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := told(t, `publisher: {for: 0}, quarantine: {for: 0}`)
			for i, m := range moments {
				m.change(f)
				f.pass(m.lasts)
				must.Need(t, w.kinds() == m.kinds, "moment %d: sent %q, want %q: %+v", i, w.kinds(), m.kinds, w.got)
				if len(w.got) > 0 {
					last := w.got[len(w.got)-1]
					said := fmt.Sprintf("%s %s: %s %s %s %d %s", last.Rule, last.Cause, last.Title, last.RunbookURL, last.ConsoleURL, last.Count, last.Error)
					must.Hold(t, strings.Contains(said, m.says), "moment %d: said %q, want %q", i, said, m.says)
				}
			}
		})
	}
}

// nowhere is a receiver that refuses every connection: a test of it is recorded all the same.
const nowhere = `{receivers: {hook: {url: "http://127.0.0.1:1/", allow_private: true}}, to: [hook]}`

var kinds = storetest.Kinds[*fixture]{
	Open: func(tb testing.TB, o ...func(*store.Options)) *fixture {
		return around(storetest.Open(tb, o...), "w-1", nowhere)
	},
	Base:   func(f *fixture) *storetest.Fixture { return f.Fixture },
	Beside: func(f *fixture) *fixture { return around(f.Fixture.Beside(), "w-2", nowhere) },
	All: []storetest.Kind[*fixture]{
		{Action: "alert_mute", Scene: func(*fixture) {},
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.Mute(f.Ctx, o, alerts.AllAlerts, "1h") },
			Undone: func(f *fixture) bool { return f.Number(`select count(*) from alert_mutes`) == 0 }},
		{Action: "alert_unmute", Scene: func(f *fixture) {
			must.Get(f.Mute(f.Ctx, storetest.Ben, alerts.AllAlerts, "1h")).Or(f.TB)
		},
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.Unmute(f.Ctx, o, alerts.AllAlerts) },
			Undone: func(f *fixture) bool { return f.Number(`select count(*) from alert_mutes`) == 1 }},
		{Action: "alert_test", Scene: func(*fixture) {},
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.Test(f.Ctx, o, "hook") },
			Undone: func(f *fixture) bool { return f.Number(`select count(*) from alert_messages`) == 0 }},
	},
}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
	kinds.MustHave(t, func(a operator.Action) bool { return strings.HasPrefix(string(a), "alert_") })
}

func TestMute_holdsBackUntilItEnds(t *testing.T) {
	w, f := told(t)
	must.Get(f.Mute(f.Ctx, storetest.Ana("deploying"), "all", "1h")).Or(t)
	f.dead(3)
	f.pass(30 * time.Minute)
	v, _ := f.View(f.Ctx)
	must.Need(t, w.kinds() == "" && v.Rules[0].MutedUntil != nil && v.Rules[0].Status() == alerts.AlertFiring, "sent %q, %+v", w.kinds(), v.Rules[0])
	must.Get(f.Unmute(f.Ctx, storetest.Ana("done"), "all")).Or(t)
	f.step()
	must.Equal(t, w.kinds(), "firing", "sent", "after the mute")
	must.Get(f.Mute(f.Ctx, storetest.Ana(""), "dead_rows", "8h")).Or(t)
	f.dead(0)
	f.pass(2 * time.Minute)
	must.Equal(t, w.kinds(), "firing", "sent", "in the mute")
	f.Clock.Advance(8 * time.Hour)
	f.pass(time.Minute)
	must.Equal(t, w.kinds(), "firing resolved", "sent", "after the mute")
	storetest.Refused(t, storetest.No(f.Unmute(f.Ctx, storetest.Ana(""), "dead_rows")), event.ErrConflict, "rule dead_rows is not muted")
}

func TestTest_sendsAMarkedMessageAndRecordsIt(t *testing.T) {
	w, f := told(t)
	o := storetest.Ana("trying")
	o.IdempotencyKey = "k-1"
	for range 2 {
		d := must.Get(f.Test(f.Ctx, o, "hook")).Or(t)
		must.Need(t, d.OK, "%+v", d)
	}
	must.Hold(t, w.kinds() == "test" && strings.Contains(w.got[0].Title, "Test message, sent by ana"), "sent %q", w.bodies)
	w.answer(500)
	d, err := f.Test(f.Ctx, storetest.Ana(""), "hook")
	must.Hold(t, err == nil && !d.OK && strings.Contains(d.Error, "500") && !strings.Contains(d.Error, "hunter2"), "%+v, %v", d, err)
	acts, err := f.AuditLogOf(f.Ctx, 10, operator.AlertReceiverTarget("hook"))
	must.Hold(t, err == nil && len(acts) == 2 && acts[0].Action == operator.ActionAlertTest, "%+v, %v", acts, err)
}

func TestWorker_doesNothingWhileAnotherHasTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := hook(w, `dead_rows: {for: 0}`)
	one := open(t, config)
	two := around(one.Beside(), "w-2", config)
	for _, f := range []*fixture{one, two} {
		f.dead(3)
	}
	for range 28 {
		one.step()
		two.step()
		one.Clock.Advance(15 * time.Second)
	}
	must.Equal(t, must.Get(two.View(two.Ctx)).Or(t).Evaluator, "w-1", "the evaluator")
	must.Equal(t, w.kinds(), "firing", "sent")
	for range 8 { // the first is gone
		two.Clock.Advance(15 * time.Second)
		two.step()
	}
	two.dead(0)
	two.step()
	v, err := two.View(two.Ctx)
	must.Hold(t, err == nil && v.Evaluator == "w-2" && w.kinds() == "firing resolved", "sent %q, by %+v, %v", w.kinds(), v.Evaluator, err)
	must.OK(t, one.EndLeases(one.Ctx, "w-2")) // which has crashed: the next start evaluates at once
	one.step()
	must.Equal(t, must.Get(one.View(one.Ctx)).Or(t).Evaluator, "w-1", "the evaluator")
	one.dead(0)
	one.meanwhile = func() { one.Exec(`update alert_evaluator set lease_owner = 'w-2', lease_epoch = lease_epoch + 1`) }
	one.pass(time.Minute)
	must.Equal(t, w.kinds(), "firing resolved firing", "sent")
}

// An evaluator whose lease was taken over stores no state and no message, sends none and releases nothing.
func TestWorker_leaseTakenOverChangesNothing(t *testing.T) {
	for _, taken := range []string{`lease_owner = 'w-2'`, `lease_epoch = lease_epoch + 1`} {
		w := newWorld(t)
		f := open(t, hook(w, `dead_rows: {for: 0}`))
		f.step()
		f.dead(3)
		before := ""
		f.meanwhile = func() {
			f.Exec(`update alert_evaluator set ` + taken)
			before = f.Dump()
		}
		f.step()
		stopped, stop := context.WithCancel(f.Ctx)
		stop()
		f.worker.Run(stopped)
		must.Equal(t, f.Dump(), before, "with "+taken+" the databases")
		must.Equal(t, w.kinds(), "", "with "+taken+" sent")
	}
}

// childReceiver is the URL to which a process started by a test sends; childJournal and childProjections are its databases.
const childReceiver, childJournal, childProjections = "OUTBOXWEB_TEST_RECEIVER", "OUTBOXWEB_TEST_JOURNAL", "OUTBOXWEB_TEST_PROJECTIONS"

// sendAndDie evaluates rules that fire until its parent kills it, which it does when it gets the message.
func sendAndDie(url string) int {
	var document yaml.Node
	err := yaml.Unmarshal([]byte(`{receivers: {hook: {url: "`+url+`", allow_private: true}}, to: [hook], rules: {dead_rows: {for: 0}}}`), &document)
	settings, err2 := alerts.Parse(document.Content[0], os.LookupEnv)
	st, err3 := store.Open(context.Background(), store.Options{Journal: os.Getenv(childJournal), Projections: os.Getenv(childProjections)})
	if err := errors.Join(err, err2, err3); err != nil {
		panic(err)
	}
	f := facts.Facts{Summary: campaign.Summary{Counts: campaign.Counts{Dead: 1}}}
	w := alerts.NewWorker(alerts.WorkerConfig{Alerts: alerts.New(st, alerts.Options{Settings: settings}), ID: fmt.Sprint("p-", os.Getpid()),
		Facts: func(context.Context) (facts.Facts, error) { return f, nil }, Every: 10 * time.Millisecond})
	w.Run(context.Background())
	return 0
}

func child(t *testing.T, f *storetest.Fixture, url string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childReceiver+"="+url, childJournal+"="+f.Pair.Journal, childProjections+"="+f.Pair.Projections)
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

// A process that is killed between sending a message and recording that sends it again, as the same one.
func TestWorker_sendsAgainAfterAKill(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	ids, proceed := make(chan string, 10), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m alerts.AlertMessage
		_ = json.NewDecoder(r.Body).Decode(&m)
		ids <- m.ID
		<-proceed
	}))
	defer server.Close()
	first := child(t, f, server.URL)
	sent := <-ids
	_ = first.Process.Kill()
	_, _ = first.Process.Wait()
	close(proceed)
	f.Exec(`update alert_evaluator set lease_expires_at = 0`) // as if a minute had passed
	child(t, f, server.URL)
	must.Equal(t, <-ids, sent, "what is sent after the kill and before it")
	must.Eventually(t, "the message is recorded", func() bool { return f.Number(`select count(*) from alert_messages where status = 'sent'`) == 1 })
	must.Equal(t, f.Number(`select count(*) from alert_messages`), 1, "messages")
}

// Two processes on one server send a message once.
func TestPostgresWorkers_sendOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	w := newWorld(t)
	child(t, f, w.URL)
	child(t, f, w.URL)
	must.Eventually(t, "a message", func() bool { return w.kinds() != "" })
	must.Eventually(t, "an evaluation", func() bool { return f.Number(`select lease_epoch from alert_evaluator where evaluated_at > 0`) > 0 })
	evaluated := f.Number(`select evaluated_at from alert_evaluator`)
	must.Eventually(t, "many more", func() bool { return f.Number(`select evaluated_at from alert_evaluator`) > evaluated+200_000 })
	must.Equal(t, w.kinds(), "firing", "sent")
}

func TestMain(m *testing.M) {
	if url := os.Getenv(childReceiver); url != "" {
		os.Exit(sendAndDie(url))
	}
	os.Exit(storetest.Main(m, "^TestPostgres"))
}
