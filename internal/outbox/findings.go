package outbox

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/finding"
)

// Facts are what is known of the whole system at one moment, of which findings are made.
type Facts struct {
	Summary     Summary
	Build       string           // of the program that would retry
	Loaded      []ProjectionInfo // the loaded projections, with the versions that built their rows
	Publishers  []Publisher
	Sources     []IntakeSource
	Groups      ErrorGroups       // of failed and dead rows
	Found       []FoundDrift      // what verifications found, by projection
	Drifted     []Verification    // that found drift, by campaign; at most MaxVerifications
	Unverified  []Verification    // that failed, likewise
	Quarantined []QuarantineCause // those in most campaigns first; may be incomplete
	Passed      map[string]QuarantinePassed
	Runs        []Run        // the latest, newest first
	Ended       []Operation  // that wait to be acknowledged, the latest first; may be incomplete
	Findings    finding.List // what is wrong, the worst first, and last, with LevelOK, what only waits to be read
	Lingering   finding.List // what is no news any more, and only keeps alerts going
	// Moved is whether anything was applied, or tried and failed, since the last evaluation of alerts.
	Moved bool
}

// MaxVerifications is how many verifications of a kind Facts have.
const MaxVerifications = 200

// The kinds of findings.
const (
	FindsFault        finding.Kind = "database"
	FindsOtherJournal finding.Kind = "other_journal"
	FindsDiverged     finding.Kind = "diverged"
	FindsBlocked      finding.Kind = "blocked"
	FindsRejected     finding.Kind = "rejected_rows"
	FindsSource       finding.Kind = "source"
	FindsPublisher    finding.Kind = "publisher"
	FindsDrift        finding.Kind = "drift"
	FindsUnverifiable finding.Kind = "unverifiable"
	FindsQuarantine   finding.Kind = "quarantine"
	FindsWorker       finding.Kind = "worker"
	FindsShadow       finding.Kind = "shadow_mode"
	FindsStalled      finding.Kind = "stalled_instance"
	FindsFailing      finding.Kind = "failing"
	FindsTroubled     finding.Kind = "troubled_instance"
	FindsSilent       finding.Kind = "silent_instance"
	FindsClock        finding.Kind = "clock"
	FindsOutdated     finding.Kind = "outdated_drift"
	FindsOtherVersion finding.Kind = "other_version"
	FindsNotLoaded    finding.Kind = "not_loaded"
	FindsCorrected    finding.Kind = "counts_corrected"
	FindsUnreadable   finding.Kind = "unreadable"
	FindsFailedRun    finding.Kind = "failed_run"
	FindsPaused       finding.Kind = "paused_projection"
	FindsPausedHere   finding.Kind = "paused_campaigns"
	FindsNotDelivered finding.Kind = "paused_publisher"
	FindsBehind       finding.Kind = "behind"
	FindsEnded        finding.Kind = "ended_operation"
	FindsLag          finding.Kind = "lag"
)

// findingKinds describe the kinds, the gravest of a level first. What a finding sets itself is empty.
var findingKinds = []struct {
	kind                                 finding.Kind
	level                                Level
	short, many, does, guide, page, link string
}{
	{FindsFault, LevelBad, "", "faults of databases", "", "", "", ""},
	{FindsOtherJournal, LevelBad, "other journal", "", rightJournal, "operating#databases-restored-from-different-days", "", ""},
	{FindsDiverged, LevelBad, "%d diverged", "", rightJournal, "operating#databases-restored-from-different-days", "/campaigns?state=diverged", "Show campaigns"},
	{FindsBlocked, LevelBad, "%d blocked", "", "Find the shared cause, fix it, then requeue by canary.", "operating#dead-heads-grow", "/failures", "Show causes"},
	{FindsRejected, LevelBad, "%d rejected", "sources have rejected rows, and each of these blocks its campaign", "Read the reason, fix the row in its table, then retry it; or discard it.", "intake#rejected-rows", "/intake", "Show rejected rows"},
	{FindsSource, LevelBad, "source not read", "sources are not read: their rows wait in their tables", "See whether its database can be reached, and a server has it in its configuration.", "intake#a-source-is-not-read", "/intake", "Show source"},
	{FindsPublisher, LevelBad, "", "publishers need attention", "Fix the destination, test it, then resume the publisher.", "operating#a-publisher-does-not-deliver", "/publishers", "Show publisher"},
	{FindsUnverifiable, LevelBad, "%d unverifiable", "", "See why events cannot be replayed.", "operating#when-a-campaign-cannot-be-verified", "/campaigns?state=unverifiable", "Show campaigns"},
	{FindsDrift, LevelBad, "%d drifted", "", "See which rows differ before a rebuild.", "operating#a-projection-is-wrong", "/campaigns?state=drifted", "Show campaigns"},
	{FindsQuarantine, LevelBad, "quarantine", "projections are quarantined after a failure", "Fix its file, then replay the projection.", "operating#a-projection-is-quarantined", "/failures#stuck", "See what failed"},
	{FindsWorker, LevelBad, "no worker", "", "See whether a worker is running, and what stops it.", "operating#a-worker-hangs-or-none-is-seen", "/instances", "Show instances"},
	{FindsStalled, LevelBad, "stalled", "instances are stalled: they apply nothing", "See what the instance was doing, and start it again.", "operating#a-worker-hangs-or-none-is-seen", "/instances", "Show instances"},
	{FindsShadow, LevelWarn, "shadow mode", "", "", "", "/instances", "Show instances"},
	{FindsFailing, LevelWarn, "%d failing", "", "", "operating#lag-rises", "/failures", "Show causes"},
	{FindsTroubled, LevelWarn, "instance in trouble", "instances are in trouble", "", "operating#a-worker-hangs-or-none-is-seen", "/instances", "Show instances"},
	{FindsSilent, LevelWarn, "instance silent", "instances are silent", "See what the instance was doing, and start it again.", "operating#a-worker-hangs-or-none-is-seen", "/instances", "Show instances"},
	{FindsClock, LevelWarn, "clocks differ", "instances have other clocks than this server", "", "", "/instances", "Show instances"},
	{FindsOutdated, LevelWarn, "outdated drift", "", "", "operating#a-projection-is-wrong", "/campaigns?state=drifted", "Show campaigns"},
	{FindsOtherVersion, LevelWarn, "other versions", "", "", "operating#a-projection-file-changes", "/projections", "Show projections"},
	{FindsNotLoaded, LevelWarn, "projection not loaded", "projections are not loaded any more: their rows are not updated, and not verified", "", "", "/projections", "Show projection"},
	{FindsCorrected, LevelWarn, "counts corrected", "", "", "", "", ""},
	{FindsUnreadable, LevelWarn, "projections unread", "", "", "", "", ""},
	{FindsFailedRun, LevelWarn, "run failed", "runs failed lately and were not repeated", "Read why it failed, fix that, then resume the run.", "operating#a-run-does-not-complete", "/runs", "See why"},
	{FindsPaused, LevelWarn, "projection paused", "projections are paused", "", "", "/projections", "Show projection"},
	{FindsPausedHere, LevelWarn, "%d paused", "", "", "operating#lag-rises", "/campaigns?state=paused", "Show campaigns"},
	{FindsNotDelivered, LevelWarn, "publisher paused", "publishers are paused", "", "", "/publishers", "Show publisher"},
	{FindsBehind, LevelWarn, "projection behind", "projections are behind", "", "", "/projections", "Show projection"},
	{FindsEnded, LevelWarn, "operation stopped", "operations have ended and not been acknowledged", "", "", "/operations", "Review operation"},
	{FindsLag, LevelBusy, "", "", "", "operating#lag-rises", "/campaigns?sort=lag", "Show campaigns"},
}

const rightJournal = "Check the URL of the journal database and restore the right journal. If it is the right one, the events were applied from another journal, or it has lost them. Only then rebuild, which removes those events from the projections."

func kindIndex(kind finding.Kind) int {
	for i, k := range findingKinds {
		if k.kind == kind {
			return i
		}
	}
	panic("a finding of no kind") // a bug in this package
}

// found is a finding as its kind describes it.
func found(kind finding.Kind, subject string, n int64, says string) finding.Finding {
	k := findingKinds[kindIndex(kind)]
	return finding.Finding{Kind: kind, Level: k.level, Subject: subject, Count: n, Says: says, Does: k.does, Guide: k.guide, Page: k.page, Link: k.link, Short: k.short, Many: k.many}
}

// Judged are the facts with what they show to be wrong: Findings and Lingering.
func (f Facts) Judged(now time.Time) Facts {
	s := f.Summary
	f.Findings, f.Lingering = nil, nil
	for _, of := range []finding.List{s.faults(), s.journalFindings(), f.rowFindings(), sourceFindings(f.Sources, now), publisherFindings(f.Publishers, now), f.driftFindings(), f.versionFindings(),
		f.quarantineFindings(), s.workerFindings(now), instanceFindings(s.Instances, now), s.heldFindings(), runFindings(f.Runs, now), operationFindings(f.Ended)} {
		for _, one := range of {
			if one.Level == LevelOK && one.Lingers {
				f.Lingering = append(f.Lingering, one)
			} else {
				f.Findings = append(f.Findings, one)
			}
		}
	}
	slices.SortStableFunc(f.Findings, func(a, b finding.Finding) int { return cmp.Compare(kindIndex(a.Kind), kindIndex(b.Kind)) })
	f.Findings.Sort()
	f.Summary.Findings = f.Findings
	return f
}

// HealthOf is a state in a sentence: the worst finding or, without one, what is said then.
func HealthOf(l finding.List, calm string) Health {
	h := Health{Level: l.Worst(), Sentence: calm}
	if h.Level != LevelOK {
		h.Sentence = l.Grouped()[0].Says + "."
	}
	return h
}

// HealthOfKinds is HealthOf findings of these kinds, with each of the others as a note.
func HealthOfKinds(l finding.List, calm string, kinds ...finding.Kind) Health {
	groups := l.Of(kinds...).Grouped()
	h := HealthOf(groups, calm)
	for i, f := range groups {
		if i > 0 || h.Level == LevelOK {
			h.Notes = append(h.Notes, f.Says+".")
		}
	}
	return h
}

// Overall is the state of the whole.
func (s Summary) Overall(l finding.List) Health {
	h := HealthOf(l, allCurrent(s.Campaigns.Total))
	if s.Campaigns.Total == 0 && len(l.Of(FindsOtherJournal)) == 0 && len(l) > 0 {
		h.Notes = append(h.Notes, allCurrent(0))
	}
	if n := s.Operations.Running; n > 0 {
		h.Notes = append(h.Notes, Count(n, "operation is", "operations are")+" running.")
	}
	return h
}

func pagePath(query url.Values, parts ...string) string {
	var path strings.Builder
	for _, part := range parts {
		path.WriteString("/" + url.PathEscape(part))
	}
	if len(query) > 0 {
		path.WriteString("?" + query.Encode())
	}
	return path.String()
}

// prepares makes the page of a finding the one that prepares a run.
func prepares(f *finding.Finding, link string, run RunRequest) {
	f.Page, f.Link, f.Runs = pagePath(run.query(), "runs", "new"), link, true
}

func (s Summary) faults() (all finding.List) {
	for _, one := range s.Faults {
		f := found(FindsFault, one.Database+"-"+string(one.Kind), 1, strings.ToUpper(one.Says[:1])+one.Headline()[1:])
		f.Level, f.Since, f.Guide, f.Short = one.Level, &one.Since, "operating#"+one.Kind.Guide(), faultKinds[one.Kind].title
		f.Does = Sentence(strings.TrimLeft(one.Says[len(one.Headline()):], ":;. "))
		all = append(all, f)
	}
	return all
}

// journalFindings are projections that have events the journal lacks.
func (s Summary) journalFindings() (all finding.List) {
	const lacks = "the projections have events that the journal does not have"
	n := s.Campaigns.Diverged
	switch {
	case s.OtherJournal && s.Events == 0 && n == s.Campaigns.Total:
		return finding.List{found(FindsOtherJournal, "", n, "The journal is empty, but the projections have events: nothing is applied")}
	case s.OtherJournal && n == 0:
		return finding.List{found(FindsOtherJournal, "", 0, Sentence(lacks)[:len(lacks)])}
	case n > 0:
		return finding.List{found(FindsDiverged, "", n, Count(n, "campaign contradicts", "campaigns contradict")+" the journal: "+lacks+", and nothing is applied there")}
	}
	return nil
}

// rowFindings are rows that are not applied.
func (f Facts) rowFindings() (all finding.List) {
	s := f.Summary
	if n := s.Campaigns.Blocked; n > 0 {
		all = append(all, f.caused(found(FindsBlocked, "", n, ofTotal(n, s.Campaigns.Total)+" blocked by a permanently failed event"), func(g ErrorGroup) int64 { return g.Heads }))
	}
	if n := s.Counts.Failed; n > 0 {
		all = append(all, f.caused(found(FindsFailing, "", n, Count(n, "row has failed and will be retried", "rows have failed and will be retried")), func(g ErrorGroup) int64 { return g.Failed }))
	}
	if n := s.Drift; n > 0 {
		all = append(all, found(FindsCorrected, "", n, "The self-check corrected the counts of "+campaigns(n)+" since the start"))
	}
	if n := s.Campaigns.Paused; n > 0 {
		all = append(all, found(FindsPausedHere, "", n, ofTotal(n, s.Campaigns.Total)+" paused"))
	}
	if s.Lag.Events > s.Counts.Failed+s.Counts.Dead {
		all = append(all, found(FindsLag, "", s.Lag.Events, Count(s.Lag.Events, "event", "events")+" not yet applied, in "+campaigns(s.Campaigns.Lagging)))
	}
	return all
}

// caused adds the errors of rows; of counts those of an error.
func (f Facts) caused(one finding.Finding, of func(ErrorGroup) int64) finding.Finding {
	more := len(f.Groups.Groups) == MaxCauses
	groups := slices.DeleteFunc(slices.Clone(f.Groups.Groups), func(g ErrorGroup) bool { return of(g) == 0 })
	slices.SortStableFunc(groups, func(a, b ErrorGroup) int { return cmp.Compare(of(b), of(a)) })
	for _, g := range groups {
		if g.FirstAt != nil && (one.Since == nil || g.FirstAt.Before(*one.Since)) {
			one.Since = g.FirstAt
		}
	}
	if len(groups) > 0 {
		one.Error = groups[0].Example
		if tried := groups[0].Tried; len(tried) > 0 {
			one.Build, one.Projection, one.Version = tried[0].Build, tried[0].Projection, tried[0].ProjectionVersion
		}
	}
	if len(groups) > 1 {
		one.Says += ", with " + AtLeast(int64(len(groups)), more) + " different errors"
	}
	return one
}

// sourceFindings are the sources whose rows do not get into the journal.
func sourceFindings(list []IntakeSource, now time.Time) (all finding.List) {
	for _, s := range UnreadSources(list, now) {
		f := found(FindsSource, s.Name, s.Waiting, "Source "+s.Name+" cannot be read")
		f.Error, f.Since, f.Page = s.Error, s.ErrorAt, pagePath(nil, "intake", s.Name)
		if s.State(now) == IntakeStopped {
			f.Says, f.Since, f.Level = "No server reads source "+s.Name+": its rows wait in their table", s.LookedAt, LevelWarn
			f.Items = []finding.Item{{Name: s.Name, Note: "read by no server", Page: f.Page}}
		}
		all = append(all, f)
	}
	for _, s := range list {
		if s.Rejected == 0 || !s.InUse(now) {
			continue
		}
		f := found(FindsRejected, s.Name, s.Rejected, Count(s.Rejected, "row of source "+s.Name+" is rejected and blocks its campaign", "rows of source "+s.Name+" are rejected, and each blocks its campaign"))
		f.Since, f.Page = s.RejectedAt, pagePath(nil, "intake", s.Name)
		all = append(all, f)
	}
	return all
}

// publisherFindings are the publishers that deliver nothing. One that failed goes on until it delivers again,
// or has nothing left to deliver: while it is retried, or after an operator cleared its errors, it has not
// recovered.
func publisherFindings(list []Publisher, now time.Time) (all finding.List) {
	list = slices.Clone(list)
	SortPublishers(list, now)
	for _, p := range list {
		f, errors, state := p.finding(), Count(int64(p.ErrorCount), "error", "errors"), p.State(now)
		f.Short, f.Items = "publisher "+string(state), []finding.Item{{Name: p.String(), Note: string(state), Page: f.Page}}
		switch {
		case state == PublisherIsFailed || state == PublisherIsStopped:
			f.Says = fmt.Sprintf("Publisher %s has %s after %s%s", p, state, errors, p.atFault())
		case state == PublisherIsPaused:
			f = found(FindsNotDelivered, p.String(), p.LagEvents, "Publisher "+p.String()+" is paused"+p.backlog())
			f.Page = pagePath(nil, "publishers", p.Topic, p.Publisher)
		case p.ErrorCount > 0:
			f.Says, f.Level, f.Lingers = fmt.Sprintf("Publisher %s is retried, and has not recovered: %s in a row%s", p, errors, p.atFault()), LevelWarn, true
		case state == PublisherIsNotHeld && !delivered(p):
			f.Says, f.Level, f.Lingers, f.Does = fmt.Sprintf("Publisher %s has waiting events and no running server", p), LevelWarn, true, "Start a server that has it in its configuration."
		case p.LastErrorAt == nil && !delivered(p):
			f.Says, f.Level, f.Lingers = fmt.Sprintf("Publisher %s has delivered nothing since it failed; an operator's action cleared its errors", p), LevelOK, true
		default:
			continue
		}
		all = append(all, f)
	}
	return all
}

// finding has the last error of a publisher, without a sentence.
func (p Publisher) finding() finding.Finding {
	f := found(FindsPublisher, p.String(), int64(p.ErrorCount), "")
	f.Error, f.Page = p.LastError, pagePath(nil, "publishers", p.Topic, p.Publisher)
	if p.LastPublishedAt != nil {
		f.Worked = *p.LastPublishedAt
	}
	if f.Since = p.LastErrorAt; f.Since != nil && p.FailingSince != nil {
		f.Since = p.FailingSince
	}
	if f.Since != nil && f.Since.Before(f.Worked) { // by the clock of another holder
		f.Since = &f.Worked
	}
	switch p.ErrorKind {
	case EventError:
		f.Does, f.Guide = "Have the receiver fixed for this event, or skip the event. A resume alone fails at the same event.", "operating#one-event-is-rejected"
	case UnknownError:
		f.Does = "Send a test event to find out whether this event or its destination is at fault. Fix that, then resume the publisher."
	}
	return f
}

// atFault continues a sentence about a publisher's errors with the event that is to blame, or may be.
func (p Publisher) atFault() string {
	event := "the event at position " + strconv.FormatInt(p.ErrorPosition, 10)
	if e := p.ErrorEvent; e != nil {
		event = fmt.Sprintf("event %d of campaign %s", e.Seq, e.CampaignID)
	}
	switch {
	case p.ErrorKind == EventError && p.ByFunction():
		return "; its function fails at " + event
	case p.ErrorKind == EventError:
		return "; its destination rejects " + event
	case p.ErrorKind == UnknownError:
		return "; " + event + " or its destination is at fault"
	}
	return ""
}

// workerFindings say whether workers are running, and apply.
func (s Summary) workerFindings(now time.Time) (all finding.List) {
	f := found(FindsWorker, "", s.Lag.Events, "No worker is running: nothing is applied")
	if s.Lag.Events == 0 {
		f.Level = LevelWarn
	}
	if s.Mode == ModeShadow {
		all = append(all, found(FindsShadow, "", 0, "The mode is shadow_only: rows are rehearsed, nothing is applied"))
		f.Says, f.Level = "No worker is running: nothing is rehearsed", LevelWarn
	}
	switch {
	case s.Worker.Starting && !s.Worker.Running:
		f.Says, f.Level = "The worker is starting", LevelBusy
	case s.Mode == ModeInline && !s.Worker.Running:
		if f.Says = "No worker is running: events that failed on append are not retried"; s.Counts.Total() == 0 {
			return nil
		}
	case !s.Worker.Running:
	case s.Mode == ModeShadow:
		return all
	case s.Counts.Pending > 0 && s.Worker.LastSeen != nil && now.Sub(*s.Worker.LastSeen) > SilentAfter && s.DueSince != nil && now.Sub(*s.DueSince) > SilentAfter:
		f.Says, f.Level = "Events are waiting, and no worker has been seen for "+Age(now.Sub(*s.Worker.LastSeen)), LevelBad
	default:
		return nil
	}
	return append(all, f)
}

// newsFor is how long an instance that fell silent is news; the page of instances shows it for a week.
const newsFor = time.Hour

// instanceFindings are the instances in trouble. One that has been silent for an hour is no news: it may have
// been replaced before anyone watched.
func instanceFindings(list []InstanceState, now time.Time) (all finding.List) {
	for _, i := range list {
		state, quiet := i.State(now), now.Sub(i.LastSeen)
		present := state == InstanceRunning || state == InstanceIdle
		var f finding.Finding
		switch {
		case state == InstanceSilent:
			f = found(FindsSilent, i.ID, int64(quiet.Seconds()), fmt.Sprintf("Instance %s has been silent for %s", i.ID, Age(quiet)))
			if f.Since, f.Lingers = &i.LastSeen, quiet >= newsFor; f.Lingers {
				f.Level = LevelOK
			}
		case i.Stalled && state == InstanceRunning:
			f = found(FindsStalled, i.ID, 1, fmt.Sprintf("Instance %s is stalled: it applies nothing", i.ID))
			f.Error = i.Trouble
		case i.Trouble != "" && present:
			f = found(FindsTroubled, i.ID, 1, "Instance "+i.ID+" is in trouble: "+i.Trouble)
		case i.clockDiffers(now):
			f = found(FindsClock, i.ID, 1, fmt.Sprintf("The clock of instance %s is %s this server's", i.ID, i.Clock()))
		default:
			continue
		}
		f.Build, f.Page = i.Version, "/instances#"+url.PathEscape("instance-"+i.ID)
		all = append(all, f)
	}
	return all
}

// heldFindings are the projections that are paused, behind or not loaded.
func (s Summary) heldFindings() (all finding.List) {
	if s.Held == nil {
		return finding.List{found(FindsUnreadable, "", 0, "Paused and quarantined projections cannot be read right now")}
	}
	for _, h := range s.Held {
		add := func(kind finding.Kind, n int64, says string) *finding.Finding {
			f := found(kind, h.Projection, n, "Projection "+h.Projection+" is "+says)
			f.Page = pagePath(nil, "projections", h.Projection)
			all = append(all, f)
			return &all[len(all)-1]
		}
		if h.NotLoaded {
			add(FindsNotLoaded, h.Behind, "not loaded any more: its rows are not updated, and not verified").Does = strings.TrimSpace(h.AdvancedWithout())
		}
		if where := h.PausedWhere(); where != "" {
			add(FindsPaused, h.PausedCampaigns, "paused "+where)
		}
		if h.Behind > 0 && !h.NotLoaded {
			if f := add(FindsBehind, h.Behind, "behind in "+h.Campaigns(h.Behind)+h.CatchUp()); h.RunID+h.BlockedByRun > 0 {
				f.Level = LevelBusy
			}
		}
	}
	return all
}

func (f Facts) quarantineFindings() (all finding.List) {
	for _, h := range QuarantinedAmong(f.Summary.Held) {
		one := found(FindsQuarantine, h.Projection, h.Quarantined, "Projection "+h.Projection+" is quarantined in "+h.Campaigns(h.Quarantined))
		one.Projection, one.Page = h.Projection, pagePath(url.Values{"projection": {h.Projection}}, "failures")+"#stuck"
		one.Items = []finding.Item{{Name: h.Projection, Note: "for " + h.Campaigns(h.Quarantined), Page: pagePath(url.Values{"state": {CursorQuarantined}}, "projections", h.Projection)}}
		for _, q := range f.Quarantined {
			if q.Projection != h.Projection {
				continue
			}
			one.Error = cmp.Or(one.Error, q.Example)
			if one.Since == nil || q.FirstAt.Before(*one.Since) {
				one.Since = &q.FirstAt
			}
		}
		if text := f.Passed[h.Projection].Sentence(h.Quarantined); text != "" {
			one.Does = Sentence(text)
			prepares(&one, "Replay what is quarantined…", RunRequest{Kind: RunReplay, All: true, Projections: []string{h.Projection}})
		}
		all = append(all, one)
	}
	return all
}

// newsOfRuns is how long a failed run is news.
const newsOfRuns = 24 * time.Hour

// runFindings are the latest runs that failed or were interrupted, and were not repeated. Of campaigns that a
// verify could not replay another alert tells.
func runFindings(latest []Run, now time.Time) (all finding.List) {
	for i, r := range latest {
		lost := r.Status == RunFailed || r.Status == RunInterrupted
		if !lost || r.Kind == RunRehearse || r.FinishedAt == nil || slices.ContainsFunc(latest[:i], r.repeatedBy) {
			continue
		}
		ended := " has failed"
		if r.Status == RunInterrupted {
			ended = " was interrupted"
		}
		id := strconv.FormatInt(r.ID, 10)
		f := found(FindsFailedRun, id, r.Counts.Failed, "Run "+id+" ("+string(r.Kind)+")"+ended)
		f.Error, f.Since, f.Page, f.Key = r.Error, r.FinishedAt, pagePath(nil, "runs", id), string(r.Kind)
		f.Items = []finding.Item{{Name: "run " + id, Note: string(r.Kind) + " of " + r.Scope() + ", " + string(r.Status), Page: f.Page, At: *r.FinishedAt}}
		old := now.Sub(*r.FinishedAt) > newsOfRuns
		if f.Lingers = old || r.Kind == RunVerify && r.Counts.Failed > 0; old {
			f.Level = LevelOK
		}
		all = append(all, f)
	}
	return all
}

// repeatedBy reports whether a later run does the same, whatever becomes of it.
func (r Run) repeatedBy(later Run) bool {
	missing := func(name string) bool { return !slices.Contains(later.Projections, name) }
	within := later.All || !r.All && !slices.ContainsFunc(r.CampaignIDs, func(id string) bool { return !slices.Contains(later.CampaignIDs, id) })
	return later.Kind == r.Kind && within && !slices.ContainsFunc(r.Projections, missing)
}

// operationFindings are the operations whose outcome nobody has acknowledged.
func operationFindings(ended []Operation) (all finding.List) {
	for _, o := range ended {
		id := strconv.FormatInt(o.ID, 10)
		f := found(FindsEnded, id, o.Totals.FailedAgain, "Operation "+id+" is "+string(o.Status)+" and waits to be acknowledged")
		if f.Error, f.Since, f.Page, f.Link = o.StopReason, o.FinishedAt, pagePath(nil, "operations", id), "Review operation "+id; o.Status != OperationStopped {
			f.Level = LevelOK
		}
		f.Items = []finding.Item{{Name: "operation " + id, Note: string(o.Status), Page: f.Page}}
		all = append(all, f)
	}
	return all
}
