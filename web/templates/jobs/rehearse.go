package jobs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// NewRehearsalView is a rehearsal before it is started.
type NewRehearsalView struct {
	Fingerprint string `redact:"-"` // of the error; empty for every blocked campaign
	Projection  string `redact:"-"` // whose file is edited
	File        campaign.RehearsalFile
	Loaded      []campaign.ProjectionInfo
	From        *campaign.Definition       // the version whose text it is; nil for the loaded one
	Run         int64                      // the rehearsal whose text it is; 0 for none
	Change      *campaign.DefinitionChange // the last one of the projection; nil if none is known
	Key         string                     `redact:"-"` // the idempotency key of the form: sent twice, it starts once
}

// rehearsalLevel is the level of a rehearsal's answer.
func rehearsalLevel(d replay.FixRehearsal) finding.Level {
	switch n := d.Healthy; {
	case d.Run.Status.Active():
		return finding.OK
	case d.Tried.Failed+n.Failed > 0:
		return finding.Bad
	case !d.Passed() && !d.Unchanged() || n.Drifted+n.NotCompared > 0:
		return finding.Warn
	}
	return finding.OK
}

// verifyOfRehearsed is a verify of the projections that the changed files of a rehearsal define: it says
// what to rebuild.
func verifyOfRehearsed(d replay.FixRehearsal) replay.RunRequest {
	o := replay.RunRequest{Kind: replay.RunVerify, All: true}
	for _, v := range d.Versions {
		o.Projections = append(o.Projections, v.Projection)
	}
	return o
}

// notLoaded says which of the projections are not loaded as rehearsed: "accounts: loaded 97b5…, rehearsed
// c18c…".
func notLoaded(d replay.FixRehearsal) []string {
	var all []string
	for _, v := range slices.Concat(d.Versions, d.Others) {
		if v.Differs() {
			line := fmt.Sprintf("%s: loaded %s, rehearsed %s", v.Projection, valueOrNone(event.ShortHash(v.Loaded)), valueOrNone(event.ShortHash(v.Rehearsed)))
			if v.RehearsedLoadedAt != nil {
				line += ", which was loaded before, since " + v.RehearsedLoadedAt.UTC().Format("2006-01-02 15:04 UTC")
			}
			all = append(all, line)
		}
	}
	return all
}

// insteadOf says what a rehearsed version was tried instead of.
func insteadOf(v replay.RehearsalVersion) string {
	if v.Before == v.Rehearsed {
		return "which was loaded"
	}
	return "instead of " + event.ShortHash(v.Before)
}

func valueOrNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// otherSchema lists the projections whose tables the changed files give another form.
func otherSchema(d replay.FixRehearsal) string {
	var names []string
	for _, v := range d.Versions {
		if v.OtherSchema {
			names = append(names, v.Projection)
		}
	}
	return strings.Join(names, ", ")
}

// groupWhere says where the campaigns of a group fail.
func groupWhere(g replay.RehearsalGroup) string {
	switch {
	case g.Seq == 0:
		return ""
	case g.Count > 1:
		return fmt.Sprintf("at event %d of campaign %s, and likewise in %s", g.Seq, g.Campaigns[0], ui.Count(g.Count-1, "other", "others"))
	}
	return fmt.Sprintf("at event %d", g.Seq)
}

// rehearseTwins are the shell equivalents of starting the rehearsal.
func rehearseTwins(p ui.Page, v NewRehearsalView) ui.Twins {
	files := []campaign.RehearsalFile{{Name: v.File.Name, Text: "-- projection: " + v.Projection}}
	asked := replay.RehearsalStartRequest{RehearsalRequest: replay.RehearsalRequest{Files: files, Fingerprint: v.Fingerprint}, ReasonRequest: ui.AnyReason}
	return ui.Twins{Curl: p.CurlPost(p.Links.API().Action(operator.ActionRehearse), asked), CLI: p.Command(operator.ActionRehearse.Command(), asked, v.File.Name)}
}

// editable reports whether the projection's file can be edited on the page.
func (v NewRehearsalView) editable() bool {
	return v.File.Text != "" && slices.ContainsFunc(v.Loaded, func(p campaign.ProjectionInfo) bool { return p.Name == v.Projection })
}

// rehearsedFiles are the loaded projections, to choose the file to edit.
func rehearsedFiles(p ui.Page, v NewRehearsalView) []ui.Choice {
	var all []ui.Choice
	for _, one := range v.Loaded {
		all = append(all, ui.Choice{Name: one.Name, To: p.Links.RehearseFile(v.Fingerprint, one.Name), Chosen: one.Name == v.Projection})
	}
	return all
}

func Changed(c campaign.DefinitionChange) string {
	switch {
	case !c.Kept:
		return "; its text is not kept."
	case c.Diff == "":
		return "; there is no text to compare."
	case c.Cut:
		return fmt.Sprintf(": %s lines added, %s removed, of which the first are here.", ui.Num(c.Added), ui.Num(c.Removed))
	}
	return fmt.Sprintf(": %s added, %s removed.", ui.Count(c.Added, "line", "lines"), ui.Num(c.Removed))
}

// PreviousVersion names the version before a change; by its hash where the change went back to a
// version before that one.
func PreviousVersion(c campaign.DefinitionChange) string {
	if c.Again {
		return "version " + event.ShortHash(c.Previous)
	}
	return "the previous version"
}
