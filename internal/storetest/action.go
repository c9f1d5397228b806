package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// Action is a kind of act of operators, on a store where it can be done. Rules are
// what every action has to keep to, in whichever package it is.
type Action struct {
	*Fixture
	Action string
	Do     func(outbox.Command) (any, error)
	// DoBeside does the same in another process.
	DoBeside func(outbox.Command) (any, error)
	// Undone reports whether nothing of the action has happened; nil where part of it
	// may happen without its record.
	Undone func() bool
	// Others are actions of other kinds.
	Others []func(outbox.Command) (any, error)
}

// Kind is a kind of act, on a fixture of a package as Scene prepares it.
type Kind[F any] struct {
	Action string
	Scene  func(F)
	Do     func(F, outbox.Command) (any, error)
	Undone func(F) bool // as Act has it
}

// Kinds are the kinds of actions of a package.
type Kinds[F any] struct {
	Open   func(testing.TB, ...func(*store.Options)) F
	Base   func(F) *Fixture
	Beside func(F) F // another process
	All    []Kind[F]
}

// Keep holds every kind of act to a rule.
func (k Kinds[F]) Keep(t *testing.T, rule func(*testing.T, Action)) {
	for _, kind := range k.All {
		t.Run(kind.Action, func(t *testing.T) {
			t.Parallel()
			rule(t, k.ready(t, kind))
		})
	}
}

// KeepRules holds every kind of act to every rule.
func (k Kinds[F]) KeepRules(t *testing.T) {
	for name, rule := range Rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k.Keep(t, rule)
		})
	}
}

// MustHave fails for every action of those that are audited and chosen of which
// there is no kind.
func (k Kinds[F]) MustHave(t *testing.T, chosen func(outbox.Action) bool) {
	for _, action := range outbox.AuditedActions() {
		tested := slices.ContainsFunc(k.All, func(kind Kind[F]) bool { return kind.Action == string(action) })
		if chosen(action) && !tested {
			t.Errorf("no test does %s", action)
		}
	}
}

// ready is the action on a store of its own where it can be done.
func (k Kinds[F]) ready(t *testing.T, kind Kind[F]) Action {
	f := k.Open(t)
	kind.Scene(f)
	base := k.Base(f)
	base.Clock.Advance(time.Minute)
	ready := Action{Fixture: base, Action: kind.Action,
		Do:       func(o outbox.Command) (any, error) { return kind.Do(f, o) },
		DoBeside: func(o outbox.Command) (any, error) { return kind.Do(k.Beside(f), o) }}
	if kind.Undone != nil {
		ready.Undone = func() bool { return kind.Undone(f) }
	}
	for _, other := range k.All {
		if other.Action != kind.Action {
			ready.Others = append(ready.Others, func(o outbox.Command) (any, error) { return other.Do(f, o) })
		}
	}
	return ready
}

// Rules test what holds for every action of operators.
var Rules = map[string]func(*testing.T, Action){
	"leaves one audit record":                     LeavesOneRecord,
	"without its audit record does not happen":    DoesNotHappenUnrecorded,
	"with an idempotency key is done once":        IsDoneOnceByKey,
	"of two at once with one key is done once":    OfTwoAtOnceIsDoneOnce,
	"that is refused leaves one record":           RefusedLeavesOneRecord,
	"is refused also where that cannot be stored": IsRefusedUnrecorded,
}

// LeavesOneRecord tests that an action that is done is on the audit log, once, as it
// was ordered.
func LeavesOneRecord(t *testing.T, a Action) {
	if _, err := a.Do(Ana("the cause is fixed")); err != nil {
		t.Fatal(err)
	}
	acts := a.DoneActions()
	if len(acts) != 1 {
		t.Fatalf("audit records are %+v, want one", acts)
	}
	got := acts[0]
	if string(got.Action) != a.Action || got.Actor != "ana" || got.Via != "page" || got.From != "10.0.0.7" || got.Reason != "the cause is fixed" || got.RequestID != "r-1" || got.At != a.Clock.Now() {
		t.Errorf("audit record is %+v", got)
	}
	if !json.Valid(got.Before) || !json.Valid(got.After) || string(got.After) == "null" {
		t.Errorf("before %s, after %s", got.Before, got.After)
	}
	a.Sound()
}

// DoesNotHappenUnrecorded tests that an action fails whose record cannot be written.
func DoesNotHappenUnrecorded(t *testing.T, a Action) {
	a.ForbidAudit("no audit today")
	_, err := a.Do(Ana(""))
	if err == nil || !strings.Contains(err.Error(), "no audit today") {
		t.Errorf("got error %v", err)
	}
	if a.Undone != nil && !a.Undone() {
		t.Error("the act happened without its record")
	}
}

// IsDoneOnceByKey tests that a repeat under the same idempotency key gets the
// first answer and changes nothing, and that no other action takes the key.
func IsDoneOnceByKey(t *testing.T, a Action) {
	o := Ana("")
	o.IdempotencyKey = "k-1"
	first, err := a.Do(o)
	if err != nil {
		t.Fatal(err)
	}
	a.Clock.Advance(time.Minute)
	a.Unchanged(func() {
		second, err := a.Do(o)
		if diff := cmp.Diff(first, second); err != nil || diff != "" {
			t.Errorf("the repeat got %v (-first +second):\n%s", err, diff)
		}
		for _, other := range a.Others {
			_, err := other(o)
			Refused(t, err, outbox.ErrConflict, "Idempotency-Key", a.Action)
		}
	})
	a.MustAppend(Event("b", "counted"))
	_, err = a.PauseCampaign(context.Background(), o, "b")
	Refused(t, err, outbox.ErrConflict, "Idempotency-Key")
	if n := len(a.DoneActions()); n != 1 {
		t.Errorf("%d audit records, want one", n)
	}
}

// OfTwoAtOnceIsDoneOnce tests that two processes that action at once under one
// idempotency key get the same answer to one action.
func OfTwoAtOnceIsDoneOnce(t *testing.T, a Action) {
	o := Ana("")
	o.IdempotencyKey = "k-1"
	var results [2]any
	var both sync.WaitGroup
	for i, do := range []func(outbox.Command) (any, error){a.Do, a.DoBeside} {
		both.Go(func() {
			var err error
			if results[i], err = do(o); err != nil {
				t.Errorf("got error %v", err)
			}
		})
	}
	both.Wait()
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("the two got different answers:\n%s", diff)
	}
	if acts := a.DoneActions(); len(acts) != 1 {
		t.Errorf("audit records are %+v, want one", acts)
	}
	a.Sound()
}

// RefusedLeavesOneRecord tests that a refusal is recorded, once, as being about
// what the action is about, and that the refused order's key stays free.
func RefusedLeavesOneRecord(t *testing.T, a Action) {
	o := Ana(strings.Repeat("ü", 251))
	o.By.Auth, o.By.Role, o.IdempotencyKey = outbox.AuthJWT, outbox.RoleAdmin, "again"
	var refusal *outbox.Refusal
	a.Unchanged(func() {
		_, err := a.Do(o)
		if refusal = Refused(t, err, outbox.ErrInvalid, "502", "500"); refusal.Field != "reason" {
			t.Errorf("the refusal is about %q", refusal.Field)
		}
	})
	list := a.RefusedActions()
	if len(list) != 1 {
		t.Fatalf("%d records were left, want one: %+v", len(list), list)
	}
	got := list[0]
	if got.ID != refusal.Act {
		t.Errorf("the refusal names the record %d, which is %d", refusal.Act, got.ID)
	}
	want := outbox.AuditEntry{ID: got.ID, At: a.Clock.Now(), Actor: "ana", Auth: outbox.AuthJWT, Role: outbox.RoleAdmin, Via: "page", From: "10.0.0.7", Action: outbox.Action(a.Action),
		CampaignID: got.CampaignID, Seq: got.Seq, Target: got.Target, Outcome: outbox.AuditRefused, Refusal: refusal.Error(),
		Before: got.Before, After: []byte("null"), Reason: strings.Repeat("ü", 250), RequestID: "r-1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}

	o.Reason = "the cause is fixed"
	if _, err := a.Do(o); err != nil {
		t.Fatalf("under the key that was refused: %v", err)
	}
	done := a.DoneActions()
	if len(done) != 1 || len(a.RefusedActions()) != 1 {
		t.Fatalf("%d acts are done and %d refused, want one each", len(done), len(a.RefusedActions()))
	}
	about := func(a outbox.AuditEntry) string { return fmt.Sprint(a.CampaignID, a.Seq, a.Target) }
	starts := strings.HasSuffix(a.Action, "_start") || strings.HasSuffix(a.Action, "_create") // what it starts or makes has no number before
	if about(done[0]) != about(got) && !starts {
		t.Errorf("the refused act was about %q, the same one done about %q", about(got), about(done[0]))
	}
}

// IsRefusedUnrecorded tests that a refusal is one even where it cannot be
// recorded.
func IsRefusedUnrecorded(t *testing.T, a Action) {
	a.ForbidAudit("no audit today")
	_, err := a.Do(Ana(strings.Repeat("x", 501)))
	if r := Refused(t, err, outbox.ErrInvalid, "501", "500"); r.Act != 0 {
		t.Errorf("the refusal names a record %d", r.Act)
	}
	if n := len(a.RefusedActions()); n != 0 {
		t.Errorf("%d records were left", n)
	}
}

// Ana is an order of the operator whose acts fixtures list.
func Ana(reason string) outbox.Command {
	return outbox.Command{By: outbox.Operator{Name: "ana", Via: "page", From: "10.0.0.7"}, Reason: reason, RequestID: "r-1"}
}

// Ben orders what is done before ana acts.
var Ben = outbox.Command{By: outbox.Operator{Name: "ben", Via: "cli"}}

// DoneActions are the records of what ana has done, newest first.
func (f *Fixture) DoneActions() []outbox.AuditEntry {
	f.TB.Helper()
	return f.actionsOfAna(outbox.AuditDone)
}

// RefusedActions are the records of what ana was refused, newest first.
func (f *Fixture) RefusedActions() []outbox.AuditEntry {
	f.TB.Helper()
	return f.actionsOfAna(outbox.AuditRefused)
}

func (f *Fixture) actionsOfAna(outcome outbox.AuditOutcome) []outbox.AuditEntry {
	f.TB.Helper()
	page, err := f.AuditLog(f.Ctx, outbox.AuditFilter{Actor: "ana", Outcome: outcome})
	if err != nil {
		f.TB.Fatal(err)
	}
	return page.Items
}

// Actions lists the actions that the audit records of a campaign, or of one
// of its rows, tell, the newest first.
func (f *Fixture) Actions(filter outbox.AuditFilter) []string {
	f.TB.Helper()
	page, err := f.AuditLog(f.Ctx, filter)
	if err != nil {
		f.TB.Fatal(err)
	}
	actions := []string{}
	for _, a := range page.Items {
		actions = append(actions, string(a.Action))
	}
	if page.Total == nil || int(*page.Total) != len(actions) {
		f.TB.Errorf("%+v lists %v, and the total is %v", filter, actions, page.Total)
	}
	return actions
}

// WantActions fails unless the actions of a filter are of these kinds, newest first.
func (f *Fixture) WantActions(filter outbox.AuditFilter, want ...string) {
	f.TB.Helper()
	if got := f.Actions(filter); !slices.Equal(got, want) {
		f.TB.Errorf("the acts by %+v are %v, want %v", filter, got, want)
	}
}

// ForbidAudit lets every audit record fail with a message.
func (f *Fixture) ForbidAudit(message string) {
	f.TB.Helper()
	if !dbtest.Postgres() {
		f.Exec(`create trigger no_audit before insert on audit_log begin select raise(abort, '` + message + `'); end`)
		return
	}
	f.Exec(`create function no_audit() returns trigger language plpgsql as $$ begin raise exception '` + message + `'; end $$`)
	f.Exec(`create trigger no_audit before insert on audit_log for each row execute function no_audit()`)
}

// AllowAudit undoes ForbidAudit.
func (f *Fixture) AllowAudit() {
	f.TB.Helper()
	of := ""
	if dbtest.Postgres() {
		of = ` on audit_log`
	}
	f.Exec(`drop trigger if exists no_audit` + of)
}

// ActionsOf are the actions of a kind that were done.
func (f *Fixture) ActionsOf(action string) []outbox.AuditEntry {
	f.TB.Helper()
	page, err := f.AuditLog(f.Ctx, outbox.AuditFilter{Action: outbox.Action(action), Outcome: outbox.AuditDone})
	if err != nil {
		f.TB.Fatal(err)
	}
	return page.Items
}

// Refused fails unless err is a refusal of the kind whose sentence has every
// fragment.
func Refused(tb testing.TB, err, kind error, fragments ...string) *outbox.Refusal {
	tb.Helper()
	var r *outbox.Refusal
	if !errors.Is(err, kind) || !errors.As(err, &r) {
		tb.Fatalf("got error %v, want a refusal: %v", err, kind)
	}
	for _, fragment := range fragments {
		if !strings.Contains(r.Error(), fragment) {
			tb.Errorf("the sentence %q lacks %q", r.Error(), fragment)
		}
	}
	return r
}

// NamesNoAction fails when a refusal names an action.
func NamesNoAction(tb testing.TB, err error) {
	tb.Helper()
	if r := Refused(tb, err, outbox.ErrConflict); strings.Contains(r.Error(), "last action") {
		tb.Errorf("an act that did not touch it is named: %v", r)
	}
}
