package outbox

import "time"

// Limits that the store, pages, the API and commands hold to alike.
const (
	DefaultPage = 50  // items in a page of a list of which no number was asked for
	MaxPage     = 200 // items in a page of a list

	MaxReason = 500  // bytes of the reason of an action
	MaxPhrase = 300  // bytes of the phrase that confirms one
	MaxNote   = 2000 // bytes of a note on an error
	// MaxFingerprint is the most bytes of a fingerprint, as a filter or a note names
	// it: twice what Fingerprint makes of an error.
	MaxFingerprint = 2 * fingerprintBytes
	// fingerprintBytes is where Fingerprint cuts.
	fingerprintBytes = 200

	// MaxOperation is the most rows of one operation. They are frozen in one
	// transaction, for which appends wait on SQLite: about a second.
	MaxOperation   = 20_000
	MaxNamed       = 10_000 // rows of an operation that are named one by one
	MaxRequeue     = 10_000 // rows of one requeue, or retry, of many
	DefaultRequeue = 100    // rows of one for which no number was asked

	// MaxGrouped is how many dead, and how many failed, rows are grouped by their
	// errors at the most: those that come first.
	MaxGrouped = 10_000

	// MaxRunCampaigns is the most campaigns that a run names one by one.
	MaxRunCampaigns = 1000
)

// Defaults that flags, the store and its loops share.
const (
	DefaultPoll         = 2 * time.Second  // between two looks for work by one loop
	DefaultLease        = 30 * time.Second // how long a right to work lasts without renewal
	DefaultEventTimeout = 10 * time.Second // the most time one event may take to apply
	DefaultConcurrency  = 2                // waves at a time: while one applies, the other settles
	DefaultRunParallel  = 2                // campaigns that a run works on at a time
)
