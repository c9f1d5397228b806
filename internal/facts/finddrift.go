package facts

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// addressed is the maximum number of campaigns in an address.
const addressed = 50

// driftFindings are the campaigns whose live rows differ from the journal, or cannot be compared with it.
func (f Facts) driftFindings() (all finding.List) {
	c := f.Summary.Campaigns
	if n := c.Unverifiable; n > 0 {
		all = append(all, f.unverifiable(n))
	}
	if n := c.Drifted - c.OutdatedDrift; n > 0 {
		all = append(all, f.drifted(n))
	}
	if n := c.OutdatedDrift; n > 0 {
		outdated := f.driftedFrom(true)
		one := campaign.Found(campaign.FindsOutdated, "", n, event.Count(n, "campaign", "campaigns")+" differed from versions of projections that are not loaded any more; verify again")
		if len(outdated) > 0 {
			one.Says = event.Count(n, "campaign", "campaigns") + " differed from " + campaign.OutdatedWords(f.Loaded, outdated...)
		}
		f.inCampaigns(&one, outdated)
		f.verifyAgain(&one, outdated)
		all = append(all, one)
	}
	return all
}

// driftedFrom are the differences from the versions that are loaded, or the outdated ones.
func (f Facts) driftedFrom(outdated bool) []campaign.Verification {
	return slices.DeleteFunc(slices.Clone(f.Drifted), func(v campaign.Verification) bool { return v.Outdated != outdated })
}

// foundBy adds since when verifications found it, and returns in which projections.
func (f Facts) foundBy(one *finding.Finding, verdict campaign.Verdict) (projections []string) {
	for _, d := range f.Found {
		if d.Verdict != verdict {
			continue
		}
		projections = append(projections, d.Projection)
		if one.Since == nil || d.Since.Before(*one.Since) {
			one.Since = &d.Since
		}
		if one.Error == "" {
			one.Error, one.Projection = d.Error, d.Projection
		}
	}
	return projections
}

// inCampaigns adds the campaigns of verifications, each with the projections that differ there.
func (f Facts) inCampaigns(one *finding.Finding, found []campaign.Verification) (campaigns, projections []string) {
	in := map[string][]string{}
	for _, v := range found {
		if in[v.CampaignID] = append(in[v.CampaignID], v.Projection); !slices.Contains(projections, v.Projection) {
			projections = append(projections, v.Projection)
		}
	}
	for _, v := range found {
		if !slices.Contains(campaigns, v.CampaignID) {
			campaigns = append(campaigns, v.CampaignID)
			one.Items = append(one.Items, finding.Item{Name: v.CampaignID, Note: campaign.ProjectionsNamed(in[v.CampaignID]) + ", ", Page: v.Page(), At: v.At})
		}
	}
	return campaigns, projections
}

// drifted leads to a rebuild of what differs, or to the change of a file: a rebuild would make what a wrong
// one says.
func (f Facts) drifted(n int64) finding.Finding {
	one := campaign.Found(campaign.FindsDrift, "", n, "")
	one.Says = "Live rows of " + campaign.Campaigns(n) + " differ from the journal" + inProjections(f.foundBy(&one, campaign.VerdictDrift))
	ids, in := f.inCampaigns(&one, f.driftedFrom(false))
	var says []string
	unchanged := slices.Clone(in)
	for _, p := range f.otherBuilt() {
		if slices.Contains(in, p.Name) {
			one.Page, one.Link = campaign.PagePath(nil, "projections", p.Name)+"#change", "See what changed"
			says = append(says, p.Sentence(p.Name, p.Version)+f.sides(&one, p))
			unchanged = slices.DeleteFunc(unchanged, func(name string) bool { return name == p.Name })
		}
	}
	switch {
	case len(says) == 0 && 0 < len(ids) && len(ids) <= addressed:
		prepares(&one, "Rebuild…", replay.RunRequest{Kind: replay.RunRebuild, Campaigns: ids, Projections: in})
	case len(says) == 0 && len(ids) > addressed && f.foundIn() > 0:
		run := strconv.FormatInt(f.foundIn(), 10)
		one.Page, one.Link, one.Runs = campaign.PagePath(url.Values{"drifted": {run}}, "runs", "new"), "Rebuild what run "+run+" found…", true
	case len(says) > 0:
		if says = append(says, campaign.BuiltAdvice); len(says) > 2 {
			one.Page, one.Link, one.Runs = "/projections", "See what changed", false
		}
		if len(unchanged) > 0 {
			says = append(says, "All rows of "+campaign.ProjectionsNamed(unchanged)+" were built by the loaded version: there it is not the cause.")
			one.Page, one.Link, one.Runs = "/campaigns?state=drifted", "Show campaigns", false
		}
		one.Does = strings.Join(says, " ")
	}
	return one
}

// foundIn is the run that found all differences that are known in detail; 0 if several did, or the background.
func (f Facts) foundIn() (run int64) {
	for n, v := range f.driftedFrom(false) {
		if n > 0 && v.RunID != run {
			return 0
		}
		run = v.RunID
	}
	return run
}

// sides says which versions made the rows that differ from the loaded one of a projection, and by which of
// them they are right; it leads to a comparison with one that is kept.
func (f Facts) sides(one *finding.Finding, p campaign.ProjectionInfo) (says string) {
	installed := f.Summary.Installed[p.Name]
	var by []string
	other := ""
	for _, d := range f.DriftBuilt {
		if d.Projection != p.Name || len(d.Versions) == 0 {
			continue
		}
		were := " "
		if len(by) == 0 {
			were = " of the campaigns that differ were built "
		}
		by = append(by, event.Number(d.Campaigns)+were+installed.By(d.Versions, p.Version))
		for _, v := range d.Versions {
			if other == "" && v != p.Version && installed.Named(v).Kept {
				other = v
			}
		}
	}
	if len(by) > 0 {
		says = " " + strings.Join(by, ", ") + "."
	}
	for _, r := range f.Compared {
		if with := r.With[p.Name]; with != "" {
			one.Page, one.Link = campaign.PagePath(url.Values{"outcome": {replay.OutcomeDrift}}, "runs", strconv.FormatInt(r.ID, 10)), "Show what differs from version "+installed.Named(with).Short()
			return says + " Compared with version " + installed.Named(with).Named() + " in run " + event.Number(r.ID) + ": " + event.Number(r.Counts.Matched) + " right, " + event.Number(r.Counts.Drifted) + " differ."
		}
	}
	if other != "" {
		prepares(one, "Compare with version "+installed.Named(other).Short()+"…", replay.CompareAll(p.Name, other))
	}
	return says
}

// unverifiable names one campaign for each error: a projection that reads tables of another has the error of
// that one.
func (f Facts) unverifiable(n int64) finding.Finding {
	one := campaign.Found(campaign.FindsUnverifiable, "", n, campaign.Campaigns(n)+" could not be verified: replaying the events failed")
	f.foundBy(&one, campaign.VerdictFailed)
	first := func(v campaign.Verification) string { line, _, _ := strings.Cut(v.Error, "\n"); return line }
	alike := map[string][]string{} // campaigns, by error
	for _, v := range f.Unverified {
		if ids := alike[event.Fingerprint(first(v))]; !slices.Contains(ids, v.CampaignID) {
			alike[event.Fingerprint(first(v))] = append(ids, v.CampaignID)
		}
	}
	for _, v := range f.Unverified {
		ids := alike[event.Fingerprint(first(v))]
		if delete(alike, event.Fingerprint(first(v))); len(ids) == 0 {
			continue
		}
		note := event.Cut(first(v), 160)
		if others := int64(len(ids)) - 1; others > 0 {
			note += ", and likewise in " + event.Count(others, "other", "others")
		}
		one.Items = append(one.Items, finding.Item{Name: v.CampaignID, Note: note + ", ", Page: v.Page(), At: v.At})
	}
	if loaded := func(v campaign.Verification) bool { return !v.Outdated }; len(f.Unverified) > 0 && !slices.ContainsFunc(f.Unverified, loaded) {
		one.Says = campaign.Campaigns(n) + " could not be verified with versions of projections that are not loaded any more; verify again with the loaded ones"
		f.verifyAgain(&one, f.Unverified)
	}
	return one
}

// verifyAgain leads to a verify of the loaded projections among those of outdated verifications.
func (f Facts) verifyAgain(one *finding.Finding, outdated []campaign.Verification) {
	verify := replay.RunRequest{Kind: replay.RunVerify, All: true}
	for _, v := range outdated {
		if !slices.Contains(verify.Projections, v.Projection) && slices.ContainsFunc(f.Loaded, func(p campaign.ProjectionInfo) bool { return p.Name == v.Projection }) {
			verify.Projections = append(verify.Projections, v.Projection)
		}
	}
	if len(verify.Projections) > 0 {
		prepares(one, "Verify again…", verify)
	}
}

// otherBuilt are the loaded projections whose rows were not all built by the loaded version.
func (f Facts) otherBuilt() []campaign.ProjectionInfo {
	return slices.DeleteFunc(slices.Clone(f.Loaded), func(p campaign.ProjectionInfo) bool { return !p.BuiltByOtherVersion })
}

// versionFindings are the projections whose rows another version built. A rebuild would make what the loaded
// one says; a verify tells first whether anything differs, unless one has, or the loaded one fails.
func (f Facts) versionFindings() finding.List {
	others := f.otherBuilt()
	if len(others) == 0 {
		return nil
	}
	says := "Projection " + others[0].Name + " has rows that another version of its definition built"
	if n := int64(len(others)); n > 1 {
		says = event.Number(n) + " projections have rows that other versions of their definitions built"
	}
	one, verify, fails := campaign.Found(campaign.FindsOtherVersion, "", int64(len(others)), says), replay.RunRequest{Kind: replay.RunVerify, All: true}, false
	failing := f.Failing()
	for _, p := range others {
		item := finding.Item{Name: p.Name, Note: "built " + p.By() + "; version " + p.Now(p.Version).Short(), Page: campaign.PagePath(nil, "projections", p.Name)}
		var which []string
		if p.BuildsSince(p.Version) {
			which = append(which, "builds what is applied since")
		}
		if failing[p.Name] != "" {
			which, fails = append(which, "fails now"), true
		}
		if len(which) > 0 {
			item.Note += ", which " + strings.Join(which, " and ") + ","
		}
		if item.Note += " is loaded"; p.LoadedAt != nil {
			item.Note, item.At = strings.TrimSuffix(item.Note, "is loaded")+"was loaded ", *p.LoadedAt
		}
		one.Items = append(one.Items, item)
		if !slices.ContainsFunc(f.driftedFrom(false), func(v campaign.Verification) bool { return v.Projection == p.Name }) {
			verify.Projections = append(verify.Projections, p.Name)
		}
	}
	if !fails && len(verify.Projections) > 0 {
		prepares(&one, "Verify all…", verify)
	}
	return finding.List{one}
}

// Failing has the loaded projections that fail now, each with the fingerprint of its worst error: of rows, or
// else of the quarantines in most campaigns since it was loaded.
func (f Facts) Failing() map[string]string {
	now, failing := campaign.RunningOf(f.Build, f.Loaded), map[string]string{}
	note := func(projection, fingerprint string) {
		if failing[projection] == "" && fingerprint != "" {
			failing[projection] = fingerprint
		}
	}
	for _, g := range f.Groups.Groups {
		for _, t := range g.Tried {
			if t.Projection != "" && now.Is(t) {
				note(t.Projection, g.Fingerprint)
			}
		}
	}
	for _, q := range f.Quarantined {
		for _, p := range f.Loaded {
			if p.Name == q.Projection && (p.LoadedAt == nil || q.LastAt.After(*p.LoadedAt)) {
				note(p.Name, q.Fingerprint)
			}
		}
	}
	return failing
}

// inProjections names projections: " in projections seats and users"; empty without any.
func inProjections(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " in " + campaign.ProjectionsNamed(names)
}
