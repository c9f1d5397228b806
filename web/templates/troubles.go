package templates

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// trouble is a problem that is no error of rows: what it is, where, and one way forward.
type trouble struct {
	hue, glyph, testID, label, title string
	note                             string // continues the title
	items                            []troubled
	action                           string
	to                               URL // empty if the reader may not perform the action
	guide                            Guide
}

type troubled struct {
	name, sub, testID string
	to                URL
	at                time.Time // shown after sub; zero shows none
}

// itemsNamed is the maximum number of objects that a trouble names.
const itemsNamed = 5

// troubles are the overview's problems beside the errors, worst first.
func troubles(p Page, v Overview) []trouble {
	var all []trouble
	for _, one := range []trouble{divergedTrouble(p, v), unverifiableTrouble(p, v), driftTrouble(p, v), outdatedTrouble(p, v), builtTrouble(p, v),
		quarantineTrouble(p, v), unreadTrouble(p, v), rejectedTrouble(p, v), publishersTrouble(p, v), instancesTrouble(p, v), runsTrouble(p, v), endedTrouble(p, v)} {
		if one.title != "" {
			all = append(all, one)
		}
	}
	return all
}

func divergedTrouble(p Page, v Overview) trouble {
	n := v.Summary.Campaigns.Diverged
	if n == 0 {
		return trouble{}
	}
	return trouble{hue: "diverged", glyph: "≠", testID: "diverged", label: "Diverged", guide: GuideDiverged,
		title:  count(n, "campaign was", "campaigns were") + " built from another journal: nothing is applied there",
		action: "Show campaigns", to: p.Links.Campaigns(outbox.CampaignFilter{State: outbox.StateDiverged})}
}

func unverifiableTrouble(p Page, v Overview) trouble {
	n := v.Summary.Campaigns.Unverifiable
	if n == 0 {
		return trouble{}
	}
	t := trouble{hue: "unverifiable", glyph: "✕", testID: "unverifiable", label: "Unverifiable", guide: GuideUnverifiable,
		title:  count(n, "campaign", "campaigns") + " could not be verified: replaying the events failed",
		action: "Show campaigns", to: p.Links.Campaigns(outbox.CampaignFilter{State: outbox.StateUnverifiable})}
	likely := func(v outbox.Verification) string { return outbox.Fingerprint(firstLine(v.Error)) }
	alike := map[string][]string{} // campaigns by error; a projection that reads tables of another has the error of that one
	for _, one := range v.Unverified {
		if ids := alike[likely(one)]; !slices.Contains(ids, one.CampaignID) {
			alike[likely(one)] = append(ids, one.CampaignID)
		}
	}
	for _, one := range v.Unverified {
		ids := alike[likely(one)]
		if delete(alike, likely(one)); len(ids) == 0 {
			continue
		}
		sub := Visible(upTo(firstLine(one.Error), diffInline))
		if n := int64(len(ids)) - 1; n > 0 {
			sub += ", and likewise in " + count(n, "other", "others")
		}
		t.items = append(t.items, troubled{name: one.CampaignID, sub: sub + ",", to: driftCause(p, one), at: one.At})
	}
	loaded := func(one outbox.Verification) bool { return !one.Outdated }
	if len(v.Unverified) > 0 && !slices.ContainsFunc(v.Unverified, loaded) {
		t.title = count(n, "campaign", "campaigns") + " could not be verified with versions of projections that are not loaded any more; verify again with the loaded ones"
		return verifyAgain(p, t, v.Unverified)
	}
	return t
}

// driftTrouble offers to rebuild what differs, or lists the campaigns if they are too many for an
// address.
func driftTrouble(p Page, v Overview) trouble {
	drifted := driftedCampaigns(v.driftedFrom(false))
	if len(drifted) == 0 {
		return trouble{}
	}
	t := trouble{hue: "drifted", glyph: "≠", testID: "drifted", label: "Drift", guide: GuideWrong,
		title: driftCount(v.driftedFrom(false), "campaign", "campaigns") + " drifted: live rows differed at the last verification from what the loaded projections make of the journal."}
	rebuild := outbox.RunRequest{Kind: outbox.RunRebuild}
	projectionsOf := map[string][]string{} // a campaign
	var in []string
	for _, one := range v.driftedFrom(false) {
		projectionsOf[one.CampaignID] = append(projectionsOf[one.CampaignID], one.Projection)
		if !slices.Contains(in, one.Projection) {
			in = append(in, one.Projection)
		}
	}
	for _, one := range drifted {
		t.items = append(t.items, troubled{name: one.CampaignID, sub: outbox.ProjectionsNamed(projectionsOf[one.CampaignID]) + ", ", to: driftCause(p, one), at: one.At})
		rebuild.Campaigns = append(rebuild.Campaigns, one.CampaignID)
	}
	switch {
	case len(drifted) > addressed:
		t.action, t.to = "Show campaigns", p.Links.Campaigns(outbox.CampaignFilter{State: outbox.StateDrifted})
	case p.Offers(outbox.ActionRunStart):
		rebuild.Projections = slices.Clone(in)
		t.action, t.to = "Rebuild…", p.Links.NewRun(rebuild)
	}
	changed := p.otherBuilt(in...) // a rebuild would make what a wrong file says
	if len(changed) == 0 {
		return t
	}
	var says []string
	for _, one := range changed {
		says = append(says, one.Sentence(one.Name, one.Version))
		in = slices.DeleteFunc(in, func(name string) bool { return name == one.Name })
	}
	says = append(says, outbox.BuiltAdvice)
	t.action, t.to = "See what changed", p.Links.Projections()
	if len(changed) == 1 {
		t.to = p.Links.Projection(changed[0].Name) + "#change"
	}
	if len(in) > 0 {
		says = append(says, "All rows of "+outbox.ProjectionsNamed(in)+" were built by the loaded version: there it is not the cause.")
		t.action, t.to = "Show campaigns", p.Links.Campaigns(outbox.CampaignFilter{State: outbox.StateDrifted})
	}
	t.note = strings.Join(says, " ")
	return t
}

// outdatedTrouble are differences from versions that are not loaded any more: they say nothing of the
// loaded ones.
func outdatedTrouble(p Page, v Overview) trouble {
	outdated := v.driftedFrom(true)
	if len(outdated) == 0 {
		return trouble{}
	}
	t := trouble{hue: "drifted", glyph: "≠", testID: "outdated-drift", label: "Outdated drift", guide: GuideWrong,
		title: driftCount(outdated, "campaign", "campaigns") + " differed from " + outbox.OutdatedWords(p.Loaded, outdated...) + "."}
	for _, one := range driftedCampaigns(outdated) {
		t.items = append(t.items, troubled{name: one.CampaignID, sub: "projection " + one.Projection + ", ", to: driftCause(p, one), at: one.At})
	}
	return verifyAgain(p, t, outdated)
}

// verifyAgain makes a verify of the loaded projections among those of outdated verifications the way
// forward.
func verifyAgain(p Page, t trouble, outdated []outbox.Verification) trouble {
	verify := outbox.RunRequest{Kind: outbox.RunVerify, All: true}
	for _, one := range outdated {
		if !slices.Contains(verify.Projections, one.Projection) && slices.ContainsFunc(p.Loaded, func(p outbox.ProjectionInfo) bool { return p.Name == one.Projection }) {
			verify.Projections = append(verify.Projections, one.Projection)
		}
	}
	if len(verify.Projections) > 0 && p.Offers(outbox.ActionRunStart) {
		t.action, t.to = "Verify again…", p.Links.NewRun(verify)
	}
	return t
}

// driftedFrom are the differences from the versions that are loaded, or the outdated ones.
func (v Overview) driftedFrom(outdated bool) (all []outbox.Verification) {
	for _, one := range v.Drifted {
		if one.Outdated == outdated {
			all = append(all, one)
		}
	}
	return all
}

func builtTrouble(p Page, v Overview) trouble {
	n := int64(len(p.otherBuilt()))
	if n == 0 {
		return trouble{}
	}
	t := trouble{hue: "drifted", glyph: "≠", testID: "other-version", label: "Version", guide: GuideFile,
		title: count(n, "projection has rows that another version of its definition built", "projections have rows that another version of their definition built")}
	// A rebuild would make whatever the loaded version says; a verify tells first whether anything differs.
	verify := outbox.RunRequest{Kind: outbox.RunVerify, All: true}
	fails := false
	for _, one := range p.otherBuilt() {
		sub := "built " + one.By() + "; version " + outbox.ShortHash(one.Version)
		var which []string
		if one.BuildsSince(one.Version) {
			which = append(which, "builds what is applied since")
		}
		if p.Failing[one.Name] != "" {
			which, fails = append(which, "fails now: fix it before a rebuild"), true
		}
		if len(which) > 0 {
			sub += ", which " + strings.Join(which, " and ") + ","
		}
		item := troubled{name: one.Name, to: p.Links.Projection(one.Name), sub: sub + " is loaded"}
		if one.LoadedAt != nil {
			item.sub, item.at = sub+" was loaded ", *one.LoadedAt
		}
		t.items = append(t.items, item)
		if !slices.ContainsFunc(v.driftedFrom(false), func(d outbox.Verification) bool { return d.Projection == one.Name }) { // or it has told
			verify.Projections = append(verify.Projections, one.Name)
		}
	}
	if !fails && len(verify.Projections) > 0 && p.Offers(outbox.ActionRunStart) {
		t.action, t.to = "Verify all…", p.Links.NewRun(verify)
	}
	return t
}

func quarantineTrouble(p Page, v Overview) trouble {
	held := outbox.QuarantinedAmong(v.Summary.Held)
	if len(held) == 0 {
		return trouble{}
	}
	t := trouble{hue: "failed", glyph: "‖", testID: "quarantined", label: "Quarantine", guide: GuideAside,
		title:  count(int64(len(held)), "projection is", "projections are") + " quarantined after a failure",
		action: "See what failed", to: p.Links.StuckOf(outbox.FailureFilter{Status: outbox.FailureOpen})}
	for _, h := range held {
		t.items = append(t.items, troubled{name: h.Projection, testID: "quarantined-" + h.Projection, sub: "for " + h.Campaigns(h.Quarantined),
			to: p.Links.ProjectionCursors(outbox.CursorFilter{Projection: h.Projection, State: outbox.CursorQuarantined})})
	}
	if len(held) == 1 {
		t.to = p.Links.StuckOf(outbox.FailureFilter{Status: outbox.FailureOpen, Projection: held[0].Projection})
	}
	replay := outbox.RunRequest{Kind: outbox.RunReplay, All: true}
	var notes []string
	for _, h := range held {
		if text := v.Passed[h.Projection].Sentence(h.Quarantined); text != "" {
			notes, replay.Projections = append(notes, "Projection "+h.Projection+": "+text), append(replay.Projections, h.Projection)
		}
	}
	t.note = strings.Join(notes, " ")
	if len(notes) > 0 && p.Offers(outbox.ActionRunStart) {
		t.action, t.to = "Replay what is quarantined…", p.Links.NewRun(replay)
	}
	return t
}

// overviewHealth is the health of the campaigns. It is not all right while events do not get in or out.
func overviewHealth(p Page, v Overview) outbox.Health {
	h := v.Summary.Health(p.Now)
	around := len(outbox.RejectingSources(v.Sources, p.Now)) + len(outbox.UnreadSources(v.Sources, p.Now)) + len(outbox.PublishersNeedingAttention(v.Publishers, p.Now))
	if h.Level == outbox.LevelOK && len(outbox.NotLoadedAmong(v.Summary.Held)) > 0 {
		h.Level, h.Sentence = outbox.LevelWarn, strings.TrimSuffix(h.Sentence, ".")+" in the loaded projections."
	}
	if h.Level == outbox.LevelOK && len(p.otherBuilt()) > 0 {
		h.Level, h.Sentence = outbox.LevelWarn, strings.TrimSuffix(h.Sentence, ".")+", but not all rows were built by the loaded projections."
	}
	if h.Level == outbox.LevelOK && around > 0 {
		h.Level = outbox.LevelWarn
		if slices.ContainsFunc(outbox.UnreadSources(v.Sources, p.Now), func(s outbox.IntakeSource) bool { return s.Error != "" }) || outbox.PublishersHealth(v.Publishers, p.Now).Level == outbox.LevelBad {
			h.Level = outbox.LevelBad
		}
		h.Sentence = strings.TrimSuffix(h.Sentence, ".") + ", but something else needs attention."
	}
	if h.Level == outbox.LevelOK && len(pausedPublishers(v)) > 0 {
		paused := outbox.PublishersHealth(v.Publishers, p.Now).Sentence
		h.Level, h.Sentence = outbox.LevelWarn, strings.TrimSuffix(h.Sentence, ".")+", but "+strings.ToLower(paused[:1])+paused[1:]
	}
	return h
}

func pausedPublishers(v Overview) (paused []outbox.Publisher) {
	for _, one := range v.Publishers {
		if one.Status == outbox.PublisherPaused {
			paused = append(paused, one)
		}
	}
	return paused
}

func rejectedTrouble(p Page, v Overview) trouble {
	list := outbox.RejectingSources(v.Sources, p.Now)
	if len(list) == 0 {
		return trouble{}
	}
	t := trouble{hue: "failed", glyph: "!", testID: "rejected-rows", label: "Rejected rows", action: "Show rejected rows", to: p.Links.Intake()}
	var rows int64
	for _, one := range list {
		rows += one.Rejected
		t.items = append(t.items, troubled{name: one.Name, sub: count(one.Rejected, "row", "rows") + ", the first rejected ", to: p.Links.Source(one.Name, "", 0), at: *one.RejectedAt})
	}
	t.title = count(rows, "intake row is rejected and blocks its campaign", "intake rows are rejected, and each blocks its campaign")
	if len(list) == 1 {
		t.to = t.items[0].to
	}
	return t
}

func unreadTrouble(p Page, v Overview) trouble {
	list := outbox.UnreadSources(v.Sources, p.Now)
	if len(list) == 0 {
		return trouble{}
	}
	t := trouble{hue: "paused", glyph: "‖", testID: "unread-sources", label: "Sources",
		title:  count(int64(len(list)), "source is not read: its rows wait in their table", "sources are not read: their rows wait in their tables"),
		action: "Show sources", to: p.Links.Intake()}
	for _, one := range list {
		item := troubled{name: one.Name, sub: "by no server", to: p.Links.Source(one.Name, "", 0)}
		if one.Error != "" {
			t.hue, t.glyph, item.sub = "dead", "✕", Visible(firstLine(one.Error))
		} else if one.LookedAt != nil {
			item.sub, item.at = "by no server since ", *one.LookedAt
		}
		t.items = append(t.items, item)
	}
	if len(list) == 1 {
		t.action, t.to = "Show source", t.items[0].to
	}
	return t
}

func publishersTrouble(p Page, v Overview) trouble {
	list := outbox.PublishersNeedingAttention(v.Publishers, p.Now)
	if len(list) == 0 {
		return trouble{}
	}
	h := outbox.PublishersHealth(v.Publishers, p.Now)
	title := h.Sentence
	if another := func(one outbox.Publisher) bool { return one.State(p.Now) != list[0].State(p.Now) }; slices.ContainsFunc(list, another) {
		title = fmt.Sprintf("%d of %s need attention.", len(list), count(int64(len(v.Publishers)), "publisher", "publishers"))
	}
	t := trouble{hue: "failed", glyph: levelGlyph(h.Level), testID: "publishers", label: "Publishers", title: title, guide: GuidePublisher,
		action: "Show publishers", to: p.Links.Publishers()}
	if h.Level == outbox.LevelBad {
		t.hue = "dead"
	}
	for _, one := range list {
		t.items = append(t.items, troubled{name: one.String(), sub: string(one.State(p.Now)), to: p.Links.Publisher(one.SubscriptionName)})
	}
	if len(list) == 1 {
		t.action, t.to = "Show publisher", t.items[0].to
	}
	return t
}

func instancesTrouble(p Page, v Overview) trouble {
	list := outbox.InstancesNeedingAttention(v.Summary.Instances, p.Now)
	if len(list) == 0 {
		return trouble{}
	}
	t := trouble{hue: "silent", glyph: "!", testID: "instances", label: "Instances", guide: GuideWorker,
		title:  count(int64(len(list)), "instance is", "instances are") + " silent or in trouble",
		action: "Show instances", to: p.Links.Instances()}
	for _, i := range list {
		if i.Stalled {
			t.hue = "dead"
		}
		one := troubled{name: i.ID, sub: string(i.State(p.Now)) + ", last seen ", to: p.Links.Instance(i.ID), at: i.LastSeen}
		if i.Trouble != "" {
			one.sub, one.at = i.Trouble, time.Time{}
		}
		t.items = append(t.items, one)
	}
	return t
}

func runsTrouble(p Page, v Overview) trouble {
	n := int64(len(v.FailedRuns))
	if n == 0 {
		return trouble{}
	}
	t := trouble{hue: "failed", glyph: "✕", testID: "failed-runs", label: "Runs",
		title:  count(n, "run failed lately and was not repeated", "runs failed lately and were not repeated"),
		action: "Show runs", to: p.Links.Runs(outbox.RunFilter{})}
	for _, r := range v.FailedRuns {
		item := troubled{name: "run " + itoa(r.ID), sub: string(r.Kind) + " of " + r.Scope() + ", " + string(r.Status) + " ", to: p.Links.RunOf(r.ID)}
		if r.FinishedAt != nil {
			item.at = *r.FinishedAt
		}
		t.items = append(t.items, item)
	}
	if n == 1 {
		t.action, t.to = "See why", t.items[0].to
	}
	return t
}

func endedTrouble(p Page, v Overview) trouble {
	n := v.Summary.Operations.Unacknowledged
	if n == 0 || len(v.Ended) == 0 {
		return trouble{}
	}
	unread := false
	t := trouble{hue: "pending", glyph: "◐", testID: "operations-ended", label: "Operations",
		title:  count(n, "operation has", "operations have") + " ended and not been acknowledged",
		action: "Review operations", to: p.Links.Operations(outbox.OperationFilter{Acknowledged: &unread})}
	for _, o := range v.Ended {
		t.items = append(t.items, troubled{name: "operation " + itoa(o.ID), sub: string(o.Status), to: p.Links.Operation(o.ID, outbox.OperationRowFilter{})})
	}
	if len(v.Ended) == 1 {
		t.action, t.to = "Review operation "+itoa(v.Ended[0].ID), t.items[0].to
	}
	return t
}
