package campaign

import (
	"net/url"
	"strings"

	"github.com/outboxweb/outboxweb/internal/finding"
)

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
	level                                finding.Level
	short, many, does, guide, page, link string
}{
	{FindsFault, finding.Bad, "", "faults of databases", "", "", "", ""},
	{FindsOtherJournal, finding.Bad, "other journal", "", rightJournal, "operating#databases-restored-from-different-days", "", ""},
	{FindsDiverged, finding.Bad, "%d diverged", "", rightJournal, "operating#databases-restored-from-different-days", "/campaigns?state=diverged", "Show campaigns"},
	{FindsBlocked, finding.Bad, "%d blocked", "", "Find the shared cause, fix it, then requeue by canary.", "operating#dead-heads-grow", "/failures", "Show causes"},
	{FindsRejected, finding.Bad, "%d rejected", "sources have rejected rows, and each of these blocks its campaign", "Read the reason, fix the row in its table, then retry it; or discard it.", "intake#rejected-rows", "/intake", "Show rejected rows"},
	{FindsSource, finding.Bad, "source not read", "sources are not read: their rows wait in their tables", "See whether its database can be reached, and a server has it in its configuration.", "intake#a-source-is-not-read", "/intake", "Show source"},
	{FindsPublisher, finding.Bad, "", "publishers need attention", "Fix the destination, test it, then resume the publisher.", "operating#a-publisher-does-not-deliver", "/publishers", "Show publisher"},
	{FindsUnverifiable, finding.Bad, "%d unverifiable", "", "See why events cannot be replayed.", "operating#when-a-campaign-cannot-be-verified", "/campaigns?state=unverifiable", "Show campaigns"},
	{FindsDrift, finding.Bad, "%d drifted", "", "See which rows differ before a rebuild.", "operating#a-projection-is-wrong", "/campaigns?state=drifted", "Show campaigns"},
	{FindsQuarantine, finding.Bad, "quarantine", "projections are quarantined after a failure", "Fix its file, then replay the projection.", "operating#a-projection-is-quarantined", "/failures#stuck", "See what failed"},
	{FindsWorker, finding.Bad, "no worker", "", "See whether a worker is running, and what stops it.", "operating#a-worker-hangs-or-none-is-seen", "/instances", "Show instances"},
	{FindsStalled, finding.Bad, "stalled", "instances are stalled: they apply nothing", "See what the instance was doing, and start it again.", "operating#a-worker-hangs-or-none-is-seen", "/instances", "Show instances"},
	{FindsShadow, finding.Warn, "shadow mode", "", "", "", "/instances", "Show instances"},
	{FindsFailing, finding.Warn, "%d failing", "", "", "operating#lag-rises", "/failures", "Show causes"},
	{FindsTroubled, finding.Warn, "instance in trouble", "instances are in trouble", "", "operating#a-worker-hangs-or-none-is-seen", "/instances", "Show instances"},
	{FindsSilent, finding.Warn, "instance silent", "instances are silent", "See what the instance was doing, and start it again.", "operating#a-worker-hangs-or-none-is-seen", "/instances", "Show instances"},
	{FindsClock, finding.Warn, "clocks differ", "instances have other clocks than this server", "", "", "/instances", "Show instances"},
	{FindsOutdated, finding.Warn, "outdated drift", "", "", "operating#a-projection-is-wrong", "/campaigns?state=drifted", "Show campaigns"},
	{FindsOtherVersion, finding.Warn, "other versions", "", "", "operating#a-projection-file-changes", "/projections", "Show projections"},
	{FindsNotLoaded, finding.Warn, "projection not loaded", "projections are not loaded any more: their rows are not updated, and not verified", "", "", "/projections", "Show projection"},
	{FindsCorrected, finding.Warn, "counts corrected", "", "", "", "", ""},
	{FindsUnreadable, finding.Warn, "projections unread", "", "", "", "", ""},
	{FindsFailedRun, finding.Warn, "run failed", "runs failed lately and were not repeated", "Read why it failed, fix that, then resume the run.", "operating#a-run-does-not-complete", "/runs", "See why"},
	{FindsPaused, finding.Warn, "projection paused", "projections are paused", "", "", "/projections", "Show projection"},
	{FindsPausedHere, finding.Warn, "%d paused", "", "", "operating#lag-rises", "/campaigns?state=paused", "Show campaigns"},
	{FindsNotDelivered, finding.Warn, "publisher paused", "publishers are paused", "", "", "/publishers", "Show publisher"},
	{FindsBehind, finding.Warn, "projection behind", "projections are behind", "", "", "/projections", "Show projection"},
	{FindsEnded, finding.Warn, "operation stopped", "operations have ended and not been acknowledged", "", "", "/operations", "Review operation"},
	{FindsLag, finding.Busy, "", "", "", "operating#lag-rises", "/campaigns?sort=lag", "Show campaigns"},
}

const rightJournal = "Check the URL of the journal database and restore the right journal. If it is the right one, the events were applied from another journal, or it has lost them. Only then rebuild, which removes those events from the projections."

// KindIndex is the place of a kind among all.
func KindIndex(kind finding.Kind) int {
	for i, k := range findingKinds {
		if k.kind == kind {
			return i
		}
	}
	panic("a finding of no kind") // a bug in this package
}

// Found is a finding as its kind describes it.
func Found(kind finding.Kind, subject string, n int64, says string) finding.Finding {
	k := findingKinds[KindIndex(kind)]
	return finding.Finding{Kind: kind, Level: k.level, Subject: subject, Count: n, Says: says, Does: k.does, Guide: k.guide, Page: k.page, Link: k.link, Short: k.short, Many: k.many}
}

// PagePath is the address of a page, of parts and a query.
func PagePath(query url.Values, parts ...string) string {
	var path strings.Builder
	for _, part := range parts {
		path.WriteString("/" + url.PathEscape(part))
	}
	if len(query) > 0 {
		path.WriteString("?" + query.Encode())
	}
	return path.String()
}
