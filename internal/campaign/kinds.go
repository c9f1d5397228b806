package campaign

import (
	"net/url"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/finding"
)

// The kinds of findings, the gravest of a level first. What a finding sets itself is empty. Each ends with the
// rules of alerts that it is a cause of.
var (
	FindsFault        = kind(finding.Finding{Kind: "database", Level: finding.Bad, Many: "faults of databases"}, "database")
	FindsOtherJournal = kind(finding.Finding{Kind: "other_journal", Level: finding.Bad, Short: "other journal", Does: rightJournal, Guide: "operating#databases-restored-from-different-days"}, "drift")
	FindsDiverged     = kind(finding.Finding{Kind: "diverged", Level: finding.Bad, Short: "%d diverged", Does: rightJournal, Guide: "operating#databases-restored-from-different-days", Page: "/campaigns?state=diverged", Link: "Show campaigns"}, "drift")
	FindsBlocked      = kind(finding.Finding{Kind: "blocked", Level: finding.Bad, Short: "%d blocked", Does: "Find the shared cause, fix it, then requeue by canary.", Guide: "operating#dead-heads-grow", Page: "/failures", Link: "Show causes"}, "blocked_campaigns")
	FindsRejected     = kind(finding.Finding{Kind: "rejected_rows", Level: finding.Bad, Short: "%d rejected", Many: "sources have rejected rows, and each of these blocks its campaign", Does: "Read the reason, fix the row in its table, then retry it; or discard it.", Guide: "intake#rejected-rows", Page: "/intake", Link: "Show rejected rows"}, "rejected_rows")
	FindsSource       = kind(finding.Finding{Kind: "source", Level: finding.Bad, Short: "source not read", Many: "sources are not read: their rows wait in their tables", Does: "See whether its database can be reached, and a server has it in its configuration.", Guide: "intake#a-source-is-not-read", Page: "/intake", Link: "Show source"}, "source")
	FindsPublisher    = kind(finding.Finding{Kind: "publisher", Level: finding.Bad, Many: "publishers need attention", Does: "Fix the destination, test it, then resume the publisher.", Guide: "operating#a-publisher-does-not-deliver", Page: "/publishers", Link: "Show publisher"}, "publisher")
	FindsUnverifiable = kind(finding.Finding{Kind: "unverifiable", Level: finding.Bad, Short: "%d unverifiable", Does: "See why events cannot be replayed.", Guide: "operating#when-a-campaign-cannot-be-verified", Page: "/campaigns?state=unverifiable", Link: "Show campaigns"}, "drift")
	FindsDrift        = kind(finding.Finding{Kind: "drift", Level: finding.Bad, Short: "%d drifted", Does: "See which rows differ before a rebuild.", Guide: "operating#a-projection-is-wrong", Page: "/campaigns?state=drifted", Link: "Show campaigns"}, "drift")
	FindsQuarantine   = kind(finding.Finding{Kind: "quarantine", Level: finding.Bad, Short: "quarantine", Many: "projections are quarantined after a failure", Does: "Fix its file, then replay the projection.", Guide: "operating#a-projection-is-quarantined", Page: "/failures#stuck", Link: "See what failed"}, "quarantine")
	FindsWorker       = kind(finding.Finding{Kind: "worker", Level: finding.Bad, Short: "no worker", Does: "See whether a worker is running, and what stops it.", Guide: "operating#a-worker-hangs-or-none-is-seen", Page: "/instances", Link: "Show instances"}, "no_progress")
	FindsStalled      = kind(finding.Finding{Kind: "stalled_instance", Level: finding.Bad, Short: "stalled", Many: "instances are stalled: they apply nothing", Does: "See what the instance was doing, and start it again.", Guide: "operating#a-worker-hangs-or-none-is-seen", Page: "/instances", Link: "Show instances"}, "no_progress", "instance")
	FindsShadow       = kind(finding.Finding{Kind: "shadow_mode", Level: finding.Warn, Short: "shadow mode", Page: "/instances", Link: "Show instances"})
	FindsFailing      = kind(finding.Finding{Kind: "failing", Level: finding.Warn, Short: "%d failing", Guide: "operating#lag-rises", Page: "/failures", Link: "Show causes"})
	FindsTroubled     = kind(finding.Finding{Kind: "troubled_instance", Level: finding.Warn, Short: "instance in trouble", Many: "instances are in trouble", Guide: "operating#a-worker-hangs-or-none-is-seen", Page: "/instances", Link: "Show instances"}, "no_progress")
	FindsSilent       = kind(finding.Finding{Kind: "silent_instance", Level: finding.Warn, Short: "instance silent", Many: "instances are silent", Does: "See what the instance was doing, and start it again.", Guide: "operating#a-worker-hangs-or-none-is-seen", Page: "/instances", Link: "Show instances"}, "instance")
	FindsClock        = kind(finding.Finding{Kind: "clock", Level: finding.Warn, Short: "clocks differ", Many: "instances have other clocks than this server", Page: "/instances", Link: "Show instances"})
	FindsOutdated     = kind(finding.Finding{Kind: "outdated_drift", Level: finding.Warn, Short: "outdated drift", Guide: "operating#a-projection-is-wrong", Page: "/campaigns?state=drifted", Link: "Show campaigns"}, "drift")
	FindsOtherVersion = kind(finding.Finding{Kind: "other_version", Level: finding.Warn, Short: "other versions", Guide: "operating#a-projection-file-changes", Page: "/projections", Link: "Show projections"})
	FindsNotLoaded    = kind(finding.Finding{Kind: "not_loaded", Level: finding.Warn, Short: "projection not loaded", Many: "projections are not loaded any more: their rows are not updated, and not verified", Page: "/projections", Link: "Show projection"})
	FindsUnreadable   = kind(finding.Finding{Kind: "unreadable", Level: finding.Warn, Short: "projections unread"})
	FindsFailedRun    = kind(finding.Finding{Kind: "failed_run", Level: finding.Warn, Short: "run failed", Many: "runs failed lately and were not repeated", Does: "Read why it failed, fix that, then resume the run.", Guide: "operating#a-run-does-not-complete", Page: "/runs", Link: "See why"}, "failed_run")
	FindsPaused       = kind(finding.Finding{Kind: "paused_projection", Level: finding.Warn, Short: "projection paused", Many: "projections are paused", Page: "/projections", Link: "Show projection"}, "paused")
	FindsPausedHere   = kind(finding.Finding{Kind: "paused_campaigns", Level: finding.Warn, Short: "%d paused", Guide: "operating#lag-rises", Page: "/campaigns?state=paused", Link: "Show campaigns"}, "paused")
	FindsNotDelivered = kind(finding.Finding{Kind: "paused_publisher", Level: finding.Warn, Short: "publisher paused", Many: "publishers are paused", Page: "/publishers", Link: "Show publisher"}, "paused")
	FindsBehind       = kind(finding.Finding{Kind: "behind", Level: finding.Warn, Short: "projection behind", Many: "projections are behind", Page: "/projections", Link: "Show projection"})
	FindsEnded        = kind(finding.Finding{Kind: "ended_operation", Level: finding.Warn, Short: "operation stopped", Many: "operations have ended and not been acknowledged", Page: "/operations", Link: "Review operation"})
	FindsLag          = kind(finding.Finding{Kind: "lag", Level: finding.Busy, Guide: "operating#lag-rises", Page: "/campaigns?sort=lag", Link: "Show campaigns"})
)

// kinds are findings as their kinds describe them, in the order of the source.
var kinds []finding.Finding

// kind adds a kind.
func kind(f finding.Finding, alerts ...string) finding.Kind {
	f.Alerts = alerts
	kinds = append(kinds, f)
	return f.Kind
}

const rightJournal = "Check the URL of the journal database and restore the right journal. If it is the right one, the events were applied from another journal, or it has lost them. Only then rebuild, which removes those events from the projections."

// Kinds are all kinds of findings, each without a subject. Callers must not change them.
func Kinds() finding.List { return kinds }

// KindIndex is the place of a kind among all.
func KindIndex(kind finding.Kind) int {
	return slices.IndexFunc(kinds, func(f finding.Finding) bool { return f.Kind == kind })
}

// Found is a finding as its kind describes it.
func Found(kind finding.Kind, subject string, n int64, says string) finding.Finding {
	f := kinds[KindIndex(kind)]
	f.Subject, f.Count, f.Says = subject, n, says
	return f
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
