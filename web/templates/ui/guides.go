package ui

// Guide is an anchor of the runbook: the section or step for a problem. Empty means that nothing is
// wrong.
type Guide string

// The guides that pages link to; a test checks that the runbook has each.
const (
	GuideLag          Guide = "lag-rises"
	GuideFailed       Guide = "retry-a-failed-head-at-once"
	GuideDead         Guide = "dead-heads-grow"
	GuideCanary       Guide = "follow-it-and-acknowledge-the-outcome"
	GuideWorker       Guide = "a-worker-hangs-or-none-is-seen"
	GuideDiverged     Guide = "databases-restored-from-different-days"
	GuideUnverifiable Guide = "when-a-campaign-cannot-be-verified"
	GuideWrong        Guide = "a-projection-is-wrong"
	GuideAside        Guide = "a-projection-is-quarantined"
	GuideFile         Guide = "a-projection-file-changes"
	GuideDisk         Guide = "disk-full"
	GuideUpgrade      Guide = "before-and-after-an-upgrade"

	GuidePublisher Guide = "a-publisher-does-not-deliver"
)
