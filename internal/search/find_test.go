package search_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// described are findings in short: their kind, object and whether they are certain.
func described(found []search.Finding) []string {
	all := []string{}
	for _, f := range found {
		text := string(f.Kind)
		switch f.Kind {
		case search.FoundCampaign:
			text += " " + f.CampaignID
		case search.FoundEvent:
			text += fmt.Sprintf(" %s/%d", f.CampaignID, f.Seq)
		case search.FoundCause:
			text += " " + f.Fingerprint
		default:
			text += fmt.Sprintf(" %s %s %s %s %s", f.Events.CampaignID, f.Events.EntityType, f.Events.EntityID, f.Events.RequestID, f.Events.Q)
		}
		if f.Certain {
			text += " !"
		}
		all = append(all, strings.Join(strings.Fields(text), " "))
	}
	return all
}

func TestFind_findsAnythingByItsName(t *testing.T) {
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("c-10", 1)
	f.Kill("c-10")
	f.AppendN("c-1", 3)
	f.MustAppend(event.Event{CampaignID: "orders", EventType: "order.placed", EventID: "ev-1", EntityType: "order", EntityID: "17", RequestID: "req-1", Payload: []byte(`{}`)},
		event.Event{CampaignID: "orders", EventType: "order.placed", EntityType: "order", EntityID: "order-18", Payload: []byte(`{}`)},
		event.Event{CampaignID: "orders", EventType: "seat.sold", EntityType: "seat", EntityID: "18", Payload: []byte(`{}`)})
	for text, want := range map[string][]string{
		"c-1":            {"campaign c-1 !", "campaign c-10"},
		"c-10":           {"campaign c-10 !"},
		"c-1/2":          {"event c-1/2 !"},
		"c-1/9":          {},
		"ev-1":           {"event orders/1 !"},
		"order 17":       {"entity order 17 !"},
		"order:17":       {"entity order 17 !"},
		"order 18":       {"entity order-18 !"},
		"order 18 -1d":   {"range order-18", "range 18"},
		"c 10":           {"campaign c-10 !"},
		"c 1":            {"campaign c-1 !", "campaign c-10"},
		"c 1 -1d":        {"range c-1", "range 1", "campaign c-1 !", "campaign c-10"},
		"c-10 -1d":       {"range c-10", "range c-10", "campaign c-10 !"},
		"17":             {"entity order 17 !"},
		"req-1":          {"request req-1 !"},
		"no such thing":  {"cause no such thing !"},
		"NO SUCH":        {"cause no such thing"},
		"nothing at all": {},
		"order 17 -1d":   {"range order 17", "range 17"},
		"rain -1d":       {"range rain"},
		"'; drop table":  {},
		"%":              {},
	} {
		found, err := f.Search.Find(f.Ctx, search.ParseAsked(text, f.Clock.Now()), redact.Builtin())
		must.Need(t, err == nil, "%q: %v", text, err)
		must.Equal(t, described(search.SortFindings(found)), want, text)
	}
}

func TestFind_redactedIDsAreNotFound(t *testing.T) {
	f := open(t)
	const token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	f.MustAppend(event.Event{CampaignID: "a", EventType: "x", EventID: token, EntityType: "user", EntityID: token, RequestID: token, Payload: []byte(`{}`)})
	open, _ := f.Search.Find(f.Ctx, search.ParseAsked(token, f.Clock.Now()), nil)
	must.Need(t, len(open) == 3, "without redaction %v is found, want event, entity and request", described(open))
	found, err := f.Search.Find(f.Ctx, search.ParseAsked(token, f.Clock.Now()), redact.Builtin())
	must.Hold(t, err == nil && len(found) == 0, "found %v, %v", described(found), err)
}

func TestValues_areThoseInUse(t *testing.T) {
	f := open(t)
	f.MustAppend(event.Event{CampaignID: "a", EventType: "b.x", EntityType: "seat", EntityID: "1", Payload: []byte(`{}`)},
		event.Event{CampaignID: "a", EventType: "a.x", EntityType: "order", EntityID: "1", Payload: []byte(`{}`)},
		event.Event{CampaignID: "a", EventType: "b.x", Payload: []byte(`{}`)})
	got := must.Get(f.Search.Values(f.Ctx)).Or(t)
	must.Equal(t, got, search.EventValues{EventTypes: []string{"a.x", "b.x"}, EntityTypes: []string{"order", "seat"}})
}

func TestViews_belongToTheirOwner(t *testing.T) {
	f := open(t)
	save := func(owner, name, query string) error {
		return f.Search.SaveView(f.Ctx, owner, search.View{List: "rows", Name: name, Query: query})
	}
	names := func(owner string) (all []string) {
		views := must.Get(f.Search.Views(f.Ctx, owner, "rows")).Or(t)
		for _, v := range views {
			all = append(all, v.Name+" "+v.Query)
		}
		return all
	}
	must.OK(t, save("ana", " mine ", "status=dead&cursor=x&limit=3"))
	got := names("ana")
	must.Hold(t, len(got) == 1 && got[0] == "mine status=dead", "kept as %q", got)
	must.Equal(t, len(names("ben")), 0, "ben sees")
	views, _ := f.Search.Views(f.Ctx, "ana", "rows")
	refused(t, f.Search.RenameView(f.Ctx, "ben", views[0].ID, "his"), event.ErrNotFound)
	refused(t, f.Search.RemoveView(f.Ctx, "ben", views[0].ID), event.ErrNotFound)
	must.OK(t, save("ana", "mine", "status=failed"))
	must.OK(t, save("ana", "other", ""))
	refused(t, f.Search.RenameView(f.Ctx, "ana", views[0].ID, "other"), event.ErrConflict)
	must.OK(t, f.Search.RenameView(f.Ctx, "ana", views[0].ID, "renamed"))
	must.OK(t, f.Search.RemoveView(f.Ctx, "ana", views[0].ID))
	must.Equal(t, names("ana"), []string{"other "})
	for _, wrong := range []search.View{{List: "nothing", Name: "x"}, {List: "rows"}, {List: "rows", Name: "a\nb"}, {List: "rows", Name: strings.Repeat("x", 101)}, {List: "rows", Name: "x", Query: "q=" + strings.Repeat("x", 2000)}, {List: "rows", Name: "x", Query: "q=%00"}} {
		refused(t, f.Search.SaveView(f.Ctx, "ana", wrong), event.ErrInvalid)
	}
	for i := range search.MaxViews - 1 {
		must.OK(t, save("ana", fmt.Sprint("v", i), ""))
	}
	refused(t, save("ana", "one too many", ""), event.ErrConflict)
	must.Equal(t, len(names("ana")), search.MaxViews, "views are kept")
}
