package event

import "time"

// Limits shared by the store, pages, the API and commands.
const (
	DefaultPage = 50  // default items per page of a list
	MaxPage     = 200 // maximum items per page of a list

	MaxBatch   = 100_000                // events applied in a transaction
	LeastWait  = time.Millisecond       // of a poll interval, an event's timeout, and a delay
	LeastLease = 100 * time.Millisecond // of a campaign
	LeastKept  = 24 * time.Hour         // of histories, unless they are kept forever

	MaxReason = 500  // bytes of an action's reason
	MaxPhrase = 300  // bytes of a confirmation phrase
	MaxNote   = 2000 // bytes of a note on an error
	// MaxFingerprint is the maximum length of a fingerprint in a filter or a note, in bytes: twice
	// what Fingerprint returns.
	MaxFingerprint = 2 * fingerprintBytes
	// fingerprintBytes is where Fingerprint truncates.
	fingerprintBytes = 200

	// MaxOperation is the maximum number of rows of one operation. They are frozen in one
	// transaction, for which appends wait on SQLite: about a second.
	MaxOperation   = 20_000
	MaxNamed       = 10_000 // rows of an operation that are named one by one
	MaxRequeue     = 10_000 // rows of one requeue or retry of many
	DefaultRequeue = 100    // default rows of a requeue or retry of many

	// MaxCauses is the maximum number of errors that are told apart.
	MaxCauses = 500
	// MaxQuarantineCauses is the maximum number of errors by which projections are quarantined.
	MaxQuarantineCauses = 100
	// MaxGrouped is the maximum number of rows that are counted by error; each error has an equal share.
	MaxGrouped = 10_000

	// MaxRunCampaigns is the maximum number of campaigns that a run names one by one.
	MaxRunCampaigns = 1000
)

// Defaults shared by flags, the store and its loops.
const (
	DefaultPoll         = 2 * time.Second  // poll interval of a loop
	DefaultLease        = 30 * time.Second // duration of a lease without renewal
	DefaultEventTimeout = 10 * time.Second // maximum time to apply one event
	DefaultConcurrency  = 2                // concurrent waves: while one applies, the other settles
	DefaultRunParallel  = 2                // campaigns that a run works on concurrently
)
