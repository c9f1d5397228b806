package ui

import (
	"slices"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/search"
)

// section is an entry of the navigation.
type section struct {
	name, key string // key follows g on the keyboard
	pages     []place
}

// place is a page of a section. Page.Nav holds its nav.
type place struct {
	nav, name string
	to        URL
}

// sections are all that the reader may open.
func sections(p Page) []section {
	l := p.Links
	system := []place{
		{"Instances", "Instances", l.Instances()},
		{"Alerts", "Alerts", l.Alerts()},
		{"Audit", "Audit log", l.Audit(operator.AuditFilter{})},
		{"About", "About", l.About()},
		{docs.Operating, "Runbook", l.Operating("")},
		{"Documentation", "Documentation", l.Docs("")},
	}
	if p.Me.Role.Includes(operator.RoleAdmin) {
		system = slices.Insert(system, 3, place{"Tokens", "API tokens", l.Tokens()})
	}
	return []section{
		{"Overview", "o", []place{{"Overview", "Overview", l.Overview()}}},
		{"Campaigns", "c", []place{{"Campaigns", "Campaigns", l.Campaigns(campaign.CampaignFilter{})}}},
		{"Events", "e", []place{
			{"Events", "Find events", l.SearchEvents(search.EventFilter{})},
			{"Rows", "Outbox", l.Rows(campaign.RowFilter{})},
			{"Intake", "Intake", l.Intake()},
		}},
		{"Failures", "p", []place{
			{"Failures", "Failures", l.Failures()},
			{"Dead", "Dead rows", l.Rows(campaign.RowFilter{Status: event.Dead})},
			{"Failed", "Failed rows", l.Rows(campaign.RowFilter{Status: event.Failed})},
		}},
		{"Runs", "j", []place{
			{"Runs", "Runs", l.Runs(replay.RunFilter{})},
			{"Operations", "Operations", l.Operations(operations.OperationFilter{})},
		}},
		{"Projections", "r", []place{{"Projections", "Projections", l.Projections()}}},
		{"Publishers", "u", []place{{"Publishers", "Publishers", l.Publishers()}}},
		{"System", "s", system},
	}
}

// RowsNav is the entry of the navigation for a list of rows.
func RowsNav(f campaign.RowFilter) string {
	switch f.Status {
	case event.Dead:
		return "Dead"
	case event.Failed:
		return "Failed"
	}
	return "Rows"
}

// RowsTitle is the title of a list of rows, as the navigation names it.
func RowsTitle(f campaign.RowFilter) string {
	if nav := RowsNav(f); nav != "Rows" {
		return nav + " rows"
	}
	return "Outbox"
}

// at returns the index of the current page within the section, or -1.
func (s section) at(nav string) int {
	return slices.IndexFunc(s.pages, func(at place) bool { return at.nav == nav })
}

// current returns the section of the current page; its name is empty if there is none.
func current(all []section, nav string) section {
	for _, s := range all {
		if s.at(nav) >= 0 {
			return s
		}
	}
	return section{}
}

// where names the current page within the navigation.
func where(all []section, nav string) string {
	s := current(all, nav)
	switch {
	case s.name == "":
		return "Menu"
	case len(s.pages) == 1 || s.pages[s.at(nav)].name == s.name:
		return s.name
	}
	return s.name + " · " + s.pages[s.at(nav)].name
}

// Here marks the link to what the reader sees, as the page itself or as what it belongs to.
func Here(seen bool, as string) templ.OrderedAttributes {
	if !seen {
		return nil
	}
	return Marks("aria-current", as)
}

// currentAs is the aria-current of the current section: its only page is the current page.
func currentAs(s section) string {
	if len(s.pages) == 1 {
		return "page"
	}
	return "true"
}
