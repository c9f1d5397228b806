package templates

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// NewRehearsalView is a rehearsal before it is started.
type NewRehearsalView struct {
	Fingerprint string `redact:"-"` // of the error; empty for every blocked campaign
	Projection  string `redact:"-"` // whose file is edited
	File        outbox.RehearsalFile
	Loaded      []outbox.ProjectionInfo
	From        *outbox.Definition       // the version whose text it is; nil for the loaded one
	Run         int64                    // the rehearsal whose text it is; 0 for none
	Change      *outbox.DefinitionChange // the last one of the projection; nil if none is known
	Key         string                   `redact:"-"` // the idempotency key of the form: sent twice, it starts once
}

// Rehearse is the page on which a fix of an error is rehearsed, empty for any.
func (l Links) Rehearse(fingerprint string) URL { return l.rehearseFile(fingerprint, "") }

// rehearseFile is that page with the file of a projection to edit.
func (l Links) rehearseFile(fingerprint, projection string) URL {
	return l.at(values("fingerprint", fingerprint, "projection", projection), "rehearsals", "new")
}

// rehearseVersion is that page with another version of the projection's file.
func (l Links) rehearseVersion(fingerprint, projection, version string) URL {
	return l.at(values("fingerprint", fingerprint, "projection", projection, "version", version), "rehearsals", "new")
}

// rehearseAgain is that page with the file that a rehearsal tried.
func (l Links) rehearseAgain(d outbox.FixRehearsal, projection string) URL {
	return l.at(values("fingerprint", d.Fingerprint, "projection", projection, "rehearsal", itoa(d.Run.ID)), "rehearsals", "new")
}

// Rehearsal is one rehearsal with its answer; for the API's links.
func (l Links) Rehearsal(id int64) URL { return l.at(nil, "rehearsals", itoa(id)) }

// canaryOf is the page that starts an operation which rests on a rehearsal; an empty selection is the
// rows that would pass.
func (l Links) canaryOf(rehearsal int64, s outbox.Selection) URL {
	query := selectionValues(s)
	query.Set("rehearsal", itoa(rehearsal))
	return l.at(query, "operations", "new")
}

// rehearses reports whether changed projection files can be rehearsed as a fix of an error; an empty
// fingerprint means any error.
func (p Page) rehearses(fingerprint string) bool {
	return p.Rehearse && p.Running.InFile(fingerprint)
}

// rehearsing adds the rehearsal of a fix to actions on a page, where it is offered for the error; an
// empty fingerprint means any error.
func rehearsing(p Page, fingerprint string, actions ...outbox.Action) []outbox.Action {
	if p.rehearses(fingerprint) {
		return append(slices.Clone(actions), outbox.ActionRehearse)
	}
	return actions
}

// rehearsalLevel is the level of a rehearsal's answer.
func rehearsalLevel(d outbox.FixRehearsal) outbox.Level {
	switch n := d.Healthy; {
	case d.Run.Status.Active():
		return outbox.LevelOK
	case d.Tried.Failed+n.Failed > 0:
		return outbox.LevelBad
	case !d.Passed() && !d.Unchanged() || n.Drifted+n.NotCompared > 0:
		return outbox.LevelWarn
	}
	return outbox.LevelOK
}

// verifyOfRehearsed is a verify of the projections that the changed files of a rehearsal define: it says
// what to rebuild.
func verifyOfRehearsed(d outbox.FixRehearsal) outbox.RunRequest {
	o := outbox.RunRequest{Kind: outbox.RunVerify, All: true}
	for _, v := range d.Versions {
		o.Projections = append(o.Projections, v.Projection)
	}
	return o
}

// notLoaded says which of the projections are not loaded as rehearsed: "accounts: loaded 97b5…, rehearsed
// c18c…".
func notLoaded(d outbox.FixRehearsal) []string {
	var all []string
	for _, v := range slices.Concat(d.Versions, d.Others) {
		if v.Differs() {
			line := fmt.Sprintf("%s: loaded %s, rehearsed %s", v.Projection, valueOrNone(outbox.ShortHash(v.Loaded)), valueOrNone(outbox.ShortHash(v.Rehearsed)))
			if v.RehearsedLoadedAt != nil {
				line += ", which was loaded before, since " + v.RehearsedLoadedAt.UTC().Format("2006-01-02 15:04 UTC")
			}
			all = append(all, line)
		}
	}
	return all
}

// insteadOf says what a rehearsed version was tried instead of.
func insteadOf(v outbox.RehearsalVersion) string {
	if v.Before == v.Rehearsed {
		return "which was loaded"
	}
	return "instead of " + outbox.ShortHash(v.Before)
}

func valueOrNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// otherSchema lists the projections whose tables the changed files give another form.
func otherSchema(d outbox.FixRehearsal) string {
	var names []string
	for _, v := range d.Versions {
		if v.OtherSchema {
			names = append(names, v.Projection)
		}
	}
	return strings.Join(names, ", ")
}

// groupWhere says where the campaigns of a group fail.
func groupWhere(g outbox.RehearsalGroup) string {
	switch {
	case g.Seq == 0:
		return ""
	case g.Count > 1:
		return fmt.Sprintf("at event %d of campaign %s, and likewise in %s", g.Seq, g.Campaigns[0], count(g.Count-1, "other", "others"))
	}
	return fmt.Sprintf("at event %d", g.Seq)
}

// rehearseTwins are the shell equivalents of starting the rehearsal.
func rehearseTwins(p Page, v NewRehearsalView) Twins {
	files := []outbox.RehearsalFile{{Name: v.File.Name, Text: "-- projection: " + v.Projection}}
	asked := outbox.RehearsalStartRequest{RehearsalRequest: outbox.RehearsalRequest{Files: files, Fingerprint: v.Fingerprint}, ReasonRequest: anyReason}
	return Twins{Curl: p.curlPost(p.Links.API().Action(outbox.ActionRehearse), asked), CLI: p.command(outbox.ActionRehearse.Command(), asked, v.File.Name)}
}

// rehearseSentence describes the start of a rehearsal from its audit record.
func rehearseSentence(a outbox.AuditEntry) string {
	var after struct {
		RunID int64  `json:"run_id"`
		Scope string `json:"scope"`
	}
	_ = json.Unmarshal(a.After, &after)
	return fmt.Sprintf("Started run %d: rehearse %s.", after.RunID, after.Scope)
}

// editable reports whether the projection's file can be edited on the page.
func (v NewRehearsalView) editable() bool {
	return v.File.Text != "" && slices.ContainsFunc(v.Loaded, func(p outbox.ProjectionInfo) bool { return p.Name == v.Projection })
}

// rehearsedFiles are the loaded projections, to choose the file to edit.
func rehearsedFiles(p Page, v NewRehearsalView) []choice {
	var all []choice
	for _, one := range v.Loaded {
		all = append(all, choice{one.Name, p.Links.rehearseFile(v.Fingerprint, one.Name), one.Name == v.Projection})
	}
	return all
}
