package tokens_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// token creates a token that is valid for a while.
func token(f *fixture, hash string, role operator.Role, valid time.Duration) operator.Token {
	return must.Get(f.CreateToken(f.Ctx, operator.Command{By: operator.Operator{Name: "scene"}}, hash, role, "deploy", f.Clock.Now().Add(valid))).Or(f.TB)
}

func TestToken_isFoundByItsHashUntilItIsRevoked(t *testing.T) {
	t.Parallel()
	f := open(t)
	made, err := f.CreateToken(f.Ctx, ana("for the deploys"), "h-1", operator.RoleOperator, "deploy", f.Clock.Now().Add(time.Hour))
	must.Need(t, err == nil && made.ID == 1 && made.CreatedBy == "ana" && made.CreatedAt.Equal(f.Clock.Now()), "made %+v, %v", made, err)
	must.Equal(t, must.Get(f.TokenByHash(f.Ctx, "h-1")).Or(t), made, "found")
	for _, hash := range []string{"", "h", "H-1", "h-2"} {
		refused(t, storetest.No(f.TokenByHash(f.Ctx, hash)), event.ErrNotFound, "no such token")
	}
	f.Clock.Advance(time.Minute)
	gone, err := f.RevokeToken(f.Ctx, ana("leaked"), made.ID)
	must.Hold(t, err == nil && gone.State(f.Clock.Now()) == "revoked" && gone.RevokedBy == "ana", "revoked %+v, %v", gone, err)
	must.Equal(t, must.Get(f.TokenByHash(f.Ctx, "h-1")).Or(t).State(f.Clock.Now()), "revoked", "found")
	f.Clock.Advance(time.Minute)
	refused(t, storetest.No(f.RevokeToken(f.Ctx, ana(""), made.ID)), event.ErrConflict, "token 1 was revoked by ana 1 m")
	refused(t, storetest.No(f.RevokeToken(f.Ctx, ana(""), 7)), event.ErrNotFound, "no token 7")
	acts, err := f.AuditLogOf(f.Ctx, 10, operator.TokenTarget(made.ID))
	must.Need(t, err == nil && len(acts) == 3 && acts[0].Outcome == operator.AuditRefused && acts[1].Action == operator.ActionTokenRevoke && acts[2].Action == operator.ActionTokenCreate, "acts on the token: %+v, %v", acts, err)
	for _, hidden := range storetest.Texts(t, f.JournalDB, `select before || after || result || target from audit_log`) {
		must.Hold(t, !strings.Contains(hidden, "h-1"), "the audit record has the hash: %s", hidden)
	}
}

func TestToken_thatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	f := open(t)
	const hour = time.Hour
	for _, c := range []struct {
		role  operator.Role
		note  string
		valid time.Duration
		text  string
	}{
		{"root", "", hour, `unknown role "root"`},
		{"", "", hour, "unknown role"},
		{operator.RoleViewer, strings.Repeat("n", 101), hour, "101 bytes"},
		{operator.RoleViewer, "two\nlines", hour, "one line"},
		{operator.RoleViewer, "\xff", hour, "one line"},
		{operator.RoleViewer, "", 59 * time.Second, "at least a minute"},
		{operator.RoleViewer, "", -hour, "at least a minute"},
		{operator.RoleViewer, "", 733 * 24 * hour, "two years"},
	} {
		refused(t, storetest.No(f.CreateToken(f.Ctx, ana(""), "h-1", c.role, c.note, f.Clock.Now().Add(c.valid))), event.ErrInvalid, c.text)
	}
	token(f, "h-1", operator.RoleViewer, hour)
	_, err := f.CreateToken(f.Ctx, ana(""), "h-1", operator.RoleAdmin, "", f.Clock.Now().Add(hour))
	must.Hold(t, err != nil, "two tokens have one hash")
	must.Equal(t, f.Number(`select count(*) from tokens`), 1, "there", "tokens")
}

func TestTokens_listsTheValidOnesFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	token(f, "h-1", operator.RoleViewer, time.Hour)
	token(f, "h-2", operator.RoleViewer, time.Minute)
	token(f, "h-3", operator.RoleViewer, time.Hour)
	token(f, "h-4", operator.RoleViewer, time.Hour)
	must.Get(f.RevokeToken(f.Ctx, ana(""), 4)).Or(t)
	f.Clock.Advance(2 * time.Minute)
	list := must.Get(f.List(f.Ctx)).Or(t)
	var got []string
	for _, token := range list {
		got = append(got, string(rune('0'+token.ID))+" "+token.State(f.Clock.Now()))
	}
	must.Equal(t, strings.Join(got, ", "), "3 valid, 1 valid, 2 expired, 4 revoked", "the list")
}

func TestNoteTokenUse_writesOnceAMinute(t *testing.T) {
	t.Parallel()
	f := open(t)
	token(f, "h-1", operator.RoleViewer, time.Hour)
	use := func() (noted time.Time) {
		f.RecordTokenUse(f.Ctx, must.Get(f.TokenByHash(f.Ctx, "h-1")).Or(t))
		if at := must.Get(f.TokenByHash(f.Ctx, "h-1")).Or(t).LastUsedAt; at != nil {
			noted = *at
		}
		return noted
	}
	// A use that the database is too busy to record is given up, and the next is recorded a minute later.
	mustNote := func() time.Time {
		must.Eventually(t, "a use to be noted", func() bool {
			f.Clock.Advance(time.Minute)
			return use().Equal(f.Clock.Now())
		})
		return f.Clock.Now()
	}
	first := mustNote()
	f.Clock.Advance(59 * time.Second)
	again := use()
	must.Hold(t, again.Equal(first), "the use was noted again after %s", again.Sub(first))
	mustNote()
}

func TestTokens_areNoActionsOnACampaign(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.MustPause("a")
	token(f, "0123", operator.RoleViewer, time.Hour)
	refused(t, storetest.No(f.PauseCampaign(f.Ctx, ana(""), "a")), event.ErrConflict, "last action: pause by scene")
}

// A token of the file is found without a database row, beats one with its hash, never expires, and its use changes nothing.
func TestToken_ofTheFile(t *testing.T) {
	t.Parallel()
	f := open(t)
	fromFile := operator.Token{Name: "deploy", Role: operator.RoleAdmin, CreatedBy: "tokens file"}
	f.File = map[string]operator.Token{"h-1": fromFile}
	made := token(f, "h-1", operator.RoleViewer, time.Hour)
	f.Clock.Advance(2 * time.Hour)
	found, err := f.TokenByHash(f.Ctx, "h-1")
	must.Hold(t, err == nil && found == fromFile && found.State(f.Clock.Now()) == "valid" && found.Identity().Name == "token deploy", "found %+v, %v", found, err)
	f.RecordTokenUse(f.Ctx, found)
	list, err := f.List(f.Ctx)
	must.Hold(t, err == nil && len(list) == 2 && list[0] == fromFile && list[1].ID == made.ID && list[1].LastUsedAt == nil, "listed %+v, %v", list, err)
}

// kinds are all operator actions on tokens.
var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return around(f.Fixture.Beside()) }, All: []storetest.Kind[*fixture]{
	{Action: "token_create", Scene: func(*fixture) {},
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.CreateToken(f.Ctx, o, "0123", operator.RoleViewer, "deploy", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
		},
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from tokens`) == 0 }},
	{Action: "token_revoke", Scene: func(f *fixture) { token(f, "0123", operator.RoleViewer, time.Hour) },
		Do:     func(f *fixture, o operator.Command) (any, error) { return f.RevokeToken(f.Ctx, o, 1) },
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from tokens where revoked_at is null`) == 1 }},
}}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestActions_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, func(a operator.Action) bool { return strings.HasPrefix(string(a), "token_") })
}

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "")) }

// fixture is a store and its tokens.
type fixture struct {
	*storetest.Fixture
	*tokens.Tokens
}

func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	return around(storetest.Open(tb, change...))
}

func around(f *storetest.Fixture) *fixture { return &fixture{f, tokens.New(f.Store)} }

var (
	ana     = storetest.Ana
	refused = storetest.Refused
)
