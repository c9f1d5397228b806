package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/sqldb"
)

// Worker names who claims, fails and settles, for leases and histories.
type Worker struct {
	ID     string       // unique per process start
	Build  string       // version of the program
	Serves outbox.Scope // the campaigns that it may claim
}

// Claim is the right to apply consecutive rows of one campaign until the
// lease ends.
type Claim struct {
	CampaignID string
	Epoch      int64 // the fencing number
	First      int64 // seq of the first row held
	Last       int64 // seq of the last row held
	// Bare is true when the events First to Last have no rows: they are applied
	// by the request that appended them.
	Bare bool
	// Attempts is the number of failures the first row already has.
	Attempts int
	// Counted is true when this attempt was counted before it starts,
	// because earlier ones took their process down.
	Counted bool
	// Slow is true when the first row's last attempt was cut off by its deadline.
	Slow bool
	// Unskipped is true when no event of the campaign was skipped at the
	// moment of the claim. While it is held none will be.
	Unskipped bool
}

// ClaimLimits bounds one wave.
type ClaimLimits struct {
	Rows  int           // rows in all
	Lease time.Duration // how long the right lasts without renewal

	// Except are campaigns to be left alone.
	Except map[string]bool

	suspect bool // a suspect, and nothing else
}

// CampaignError is an error of work on several campaigns that concerns one.
type CampaignError struct {
	CampaignID string
	Err        error
}

func (e *CampaignError) Error() string { return fmt.Sprintf("campaign %q: %v", e.CampaignID, e.Err) }

func (e *CampaignError) Unwrap() error { return e.Err }

// WaveShares is into how many parts a wave is divided at the least when more
// campaigns are due: none gets more than its share then. A full wave of fewer
// campaigns has taken all that were due.
const WaveShares = 8

// waveCampaigns is the most campaigns in a wave.
const waveCampaigns = 256

const (
	selectDue = `
select ` + CampaignColumns + `
from campaigns
where due_at <= $1
  and (due_at, campaign_id) > ($3, $4)
  and crashes < ` + suspectCrashes

	dueFirst = `
order by due_at, campaign_id
limit $2`
)

// serving is the condition of a query for the campaigns of a scope, and its
// parameters, of which there are others before. It is judged on each entry of the
// index on due_at: of the campaigns that owe something, and of no others.
func serving(s outbox.Scope, before ...any) (condition string, args []any) {
	args = before
	if s.Every() {
		return "", args
	}
	var matches []string
	for _, p := range s.Patterns() {
		begin, open := strings.CutSuffix(p, "*")
		args = append(args, begin)
		id := "campaign_id"
		if open {
			id = fmt.Sprintf("substr(campaign_id, 1, %d)", utf8.RuneCountInString(begin))
		}
		matches = append(matches, fmt.Sprintf("%s = $%d", id, len(args)))
	}
	return "\n  and (" + strings.Join(matches, " or ") + ")", args
}

// suspectFrom is how many processes must have died with a campaign for it to be a
// suspect, and suspectCrashes the same for statements.
const (
	suspectFrom    = 2
	suspectCrashes = "2"
)

func (c *CampaignRow) suspected() bool { return c.Crashes >= suspectFrom }

const selectDueSuspect = `
select ` + CampaignColumns + `
from campaigns
where due_at <= $1
  and crashes >= ` + suspectCrashes

// Claim takes a wave: the campaigns that have been due the longest, a run of
// consecutive rows of each from its head on, marked processing under a new
// epoch. Campaigns whose lease ran out are taken over; suspects are left to
// ClaimSuspect. No campaigns are no
// error. Claims beside an error may be held or not, since the answer to the
// commit was lost: the caller settles them with nothing applied.
func (s *Store) Claim(ctx context.Context, w Worker, limits ClaimLimits) ([]Claim, error) {
	if s.journal.Dialect.OneWriter {
		// Looking first costs an idle worker no write lock.
		if wait, any, err := s.UntilDue(ctx, w.Serves); err != nil || !any || wait > 0 {
			return nil, err
		}
	}
	claims, err := s.claim(ctx, w, limits, func(t *Tx, now int64) ([]*CampaignRow, error) { return t.dueCampaigns(now, w.Serves, limits) })
	if errors.Is(err, outbox.ErrDamaged) {
		claims, err = s.claim(ctx, w, limits, func(t *Tx, now int64) ([]*CampaignRow, error) { return t.readableDue(now, w.Serves, limits) })
	}
	return claims, err
}

// ClaimSuspect is Claim for one suspect, a campaign that two processes have died
// with: its head alone, with the attempt counted before it starts. No process
// may try two suspects at a time, nor anything else beside one, so that the one
// that takes it down is told from those that were only there.
func (s *Store) ClaimSuspect(ctx context.Context, w Worker, lease time.Duration) ([]Claim, error) {
	if due, err := s.SuspectDue(ctx, w.Serves); err != nil || !due {
		return nil, err
	}
	return s.claim(ctx, w, ClaimLimits{Rows: 1, Lease: lease, suspect: true}, func(t *Tx, now int64) (due []*CampaignRow, err error) {
		served, args := serving(w.Serves, now)
		err = t.Each(collectCampaigns(&due), selectDueSuspect+served+"\norder by due_at, campaign_id\nlimit 1"+t.SkipLocked, args...)
		return due, err
	})
}

// SuspectDue reports whether a suspect of a scope may be claimed.
func (s *Store) SuspectDue(ctx context.Context, scope outbox.Scope) (due bool, err error) {
	served, args := serving(scope, s.Now())
	err = s.journal.Read(ctx, func(t *Tx) error {
		var id string
		due, err = t.One([]any{&id}, `select campaign_id from campaigns where due_at <= $1 and crashes >= `+suspectCrashes+served+` limit 1`, args...)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for suspects: %w", err)
	}
	return due, nil
}

func collectCampaigns(into *[]*CampaignRow) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		c := new(CampaignRow)
		*into = append(*into, c)
		return row.Scan(c.Dest()...)
	}
}

func (s *Store) claim(ctx context.Context, w Worker, limits ClaimLimits, find func(t *Tx, now int64) ([]*CampaignRow, error)) ([]Claim, error) {
	var claims []Claim
	err := s.journal.Write(ctx, func(t *Tx) error {
		now := s.Now()
		due, err := find(t, now)
		if err != nil || len(due) == 0 {
			return err
		}
		taken, err := s.take(t, due, w, limits, now)
		if err != nil {
			return err
		}
		claims, err = t.hold(taken, w, limits.Lease, now)
		return err
	})
	if err != nil {
		return claims, fmt.Errorf("claim: %w", err)
	}
	return claims, nil
}

// UntilDue is how long it takes until the next campaign of a scope may be claimed,
// not below 0; false when none ever will by itself.
func (s *Store) UntilDue(ctx context.Context, scope outbox.Scope) (time.Duration, bool, error) {
	var due sql.NullInt64
	served, args := serving(scope)
	err := s.journal.Read(ctx, func(t *Tx) error {
		_, err := t.One([]any{&due}, `select min(due_at) from campaigns where due_at is not null`+served, args...)
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("look for the next due campaign: %w", err)
	}
	return max(0, time.Duration(due.Int64-s.Now())*time.Microsecond), due.Valid, nil
}

// leastShare is the number of rows of a wave that a campaign may have however
// many others are due.
func leastShare(rows int) int { return max(1, rows/WaveShares) }

// claimStep is how many due campaigns a claim reads at first: as many as can be in
// a wave, or few where reading them locks them.
func (t *Tx) claimStep() int {
	if t.Dialect().OneWriter {
		return waveCampaigns
	}
	return WaveShares
}

// dueCampaigns reads due campaigns until their shares fill the wave. It reads,
// and with that locks, few at first and more as long as they are small.
func (t *Tx) dueCampaigns(now int64, scope outbox.Scope, limits ClaimLimits) ([]*CampaignRow, error) {
	var due []*CampaignRow
	filled, lastDue, lastID := int64(0), int64(-1<<63), ""
	for step := t.claimStep(); filled < int64(limits.Rows) && len(due) < waveCampaigns; step *= 2 {
		want, seen := min(step, waveCampaigns-len(due)), 0
		served, args := serving(scope, now, want, lastDue, lastID)
		err := t.Each(func(row sqldb.Row) error {
			c := new(CampaignRow)
			if err := row.Scan(c.Dest()...); err != nil {
				return err
			}
			seen++
			lastDue, lastID = c.Due.Int64, c.ID
			if limits.Except[c.ID] {
				return nil
			}
			due = append(due, c)
			if filled += min(c.Counts.Total(), int64(leastShare(limits.Rows))); filled >= int64(limits.Rows) {
				return sqldb.ErrEnough
			}
			return nil
		}, selectDue+served+dueFirst+t.SkipLocked, args...)
		if err != nil || seen < want {
			return due, err
		}
	}
	return due, nil
}

// readableDue is dueCampaigns where the rows of some campaigns cannot be read. Their
// names can, from an index; the first whose row cannot is a CampaignError.
func (t *Tx) readableDue(now int64, scope outbox.Scope, limits ClaimLimits) (due []*CampaignRow, err error) {
	var ids []string
	served, args := serving(scope, now, waveCampaigns+len(limits.Except))
	err = t.Each(func(row sqldb.Row) error {
		var id string
		err := row.Scan(&id)
		if !limits.Except[id] {
			ids = append(ids, id)
		}
		return err
	}, `select campaign_id from campaigns where due_at <= $1`+served+dueFirst, args...)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		c, found, err := t.campaign(id)
		if err != nil {
			return nil, &CampaignError{id, err}
		}
		if found && !c.suspected() {
			due = append(due, c)
		}
	}
	return due, nil
}

// taking is a campaign on its way to being claimed.
type taking struct {
	c      *CampaignRow
	claim  Claim
	want   int64 // rows to mark
	marked int64
}

// take ends leases that ran out and marks the rows of each campaign that is to
// be claimed. Campaigns that turn out to be held by something else, such as a
// head that died with its worker, are left out.
func (s *Store) take(t *Tx, due []*CampaignRow, w Worker, limits ClaimLimits, now int64) ([]*taking, error) {
	var taken []*taking
	var marks sqldb.Batch
	left := int64(limits.Rows)
	share := int64(max(leastShare(limits.Rows), limits.Rows/len(due)))
	for _, c := range due {
		if left <= 0 {
			break
		}
		if c.LeaseOwner != "" {
			if err := s.takeOver(t, c, w, now); err != nil {
				return nil, &CampaignError{c.ID, err}
			}
		}
		if hold, _ := c.Standing().Hold(now); hold != outbox.HoldNone || c.suspected() != limits.suspect {
			c.Schedule(now)
			if err := t.Save(c, now); err != nil {
				return nil, err
			}
			continue
		}
		k := newTaking(c, min(share, left))
		marks.Exec(sqldb.Into(&k.marked), markRows, c.ID, k.claim.First, k.claim.Last, k.claim.Epoch, now)
		taken = append(taken, k)
		left -= k.want
	}
	if done, err := t.Run(&marks); err != nil {
		return nil, &CampaignError{taken[min(done, len(taken)-1)].c.ID, fmt.Errorf("mark rows: %w", err)}
	}
	return taken, nil
}

func newTaking(c *CampaignRow, limit int64) *taking {
	k := &taking{c: c, claim: Claim{CampaignID: c.ID, Epoch: c.LeaseEpoch + 1, First: c.Head.Int64, Counted: c.suspected(), Unskipped: c.Skips == 0}}
	there := c.Counts.Pending
	if k.retried() {
		there++
	}
	k.want = min(limit, there)
	k.claim.Last = k.claim.First + k.want - 1
	return k
}

// retried reports whether the head has failed before and is tried again.
func (k *taking) retried() bool { return k.c.HeadStatus.String == string(outbox.Failed) }

// hold gives the worker the leases of campaigns whose rows are marked, and
// brings their counts up to that.
func (t *Tx) hold(taken []*taking, w Worker, lease time.Duration, now int64) ([]Claim, error) {
	var claims []Claim
	var saves sqldb.Batch
	for _, k := range taken {
		c := k.c
		if err := t.settleMarks(k, now); err != nil {
			return nil, &CampaignError{c.ID, fmt.Errorf("mark rows: %w", err)}
		}
		if k.claim.Last < k.claim.First {
			if err := t.mend(c, now); err != nil {
				return nil, err
			}
			continue
		}
		c.LeaseOwner, c.LeaseEpoch, c.LeaseExpiry = w.ID, k.claim.Epoch, now+lease.Microseconds()
		c.Schedule(now)
		c.SaveInto(&saves, now)
		claims = append(claims, k.claim)
	}
	if err := t.Finish(&saves); err != nil {
		return claims, fmt.Errorf("lease campaigns: %w", err)
	}
	return claims, nil
}

// mend sets a campaign's row right that promised rows which are not there.
func (t *Tx) mend(c *CampaignRow, now int64) error {
	if err := t.Recount(c); err != nil {
		return err
	}
	return t.saveFromHead(c, now)
}

const markRows = `
update projection_apply_outbox
set status = 'processing', claim_epoch = $4, updated_at = $5
where campaign_id = $1
  and seq between $2 and $3
  and (status = 'pending' or (seq = $2 and status = 'failed'))`

const countAttempt = `
update projection_apply_outbox
set attempt_count = attempt_count + $3
where campaign_id = $1
  and seq = $2
  and status = 'processing'`

// settleMarks brings the campaign's counts up to the rows that were marked and
// fills in what the claim holds. A hole or a dead row further on ends the run.
func (t *Tx) settleMarks(k *taking, now int64) (err error) {
	c, claim := k.c, &k.claim
	if k.marked != k.want {
		if k.marked, err = t.keepRun(c, claim, now); err != nil {
			return err
		}
	}
	// A head that was tried and given back is pending again, due since its
	// last failure and not since its append.
	if k.retried() || c.Crashes > 0 || c.HeadNext != c.Oldest {
		var last string
		if _, err := t.One([]any{&claim.Attempts, &last}, `select attempt_count, last_error from projection_apply_outbox where campaign_id = $1 and seq = $2`, c.ID, claim.First); err != nil {
			return err
		}
		claim.Slow = strings.HasPrefix(last, outbox.CutOff)
	}
	if claim.Counted {
		if _, err := t.Exec(countAttempt, c.ID, claim.First, 1); err != nil {
			return err
		}
	}
	if k.marked == 0 {
		return nil
	}
	if k.retried() {
		c.Counts.Failed--
		c.Counts.Pending++
	}
	c.Counts.Pending -= k.marked
	c.Counts.Processing += k.marked
	c.HeadStatus.String = string(outbox.Processing)
	return nil
}

const unmarkRows = `
update projection_apply_outbox
set status = 'pending', updated_at = $5
where campaign_id = $1
  and seq between $2 and $3
  and status = 'processing'
  and claim_epoch = $4`

// keepRun gives back what was marked beyond the first hole and returns the
// length of the run that stays marked.
func (t *Tx) keepRun(c *CampaignRow, claim *Claim, now int64) (int64, error) {
	last, next := claim.Last, claim.First
	err := t.Each(func(rows sqldb.Row) error {
		var seq, epoch int64
		var status string
		if err := rows.Scan(&seq, &status, &epoch); err != nil {
			return err
		}
		if seq == next && status == string(outbox.Processing) && epoch == claim.Epoch {
			next++
		}
		return nil
	}, `select seq, status, claim_epoch from projection_apply_outbox where campaign_id = $1 and seq between $2 and $3 order by seq`, c.ID, claim.First, claim.Last)
	if err != nil {
		return 0, err
	}
	claim.Last = next - 1
	_, err = t.Exec(unmarkRows, c.ID, next, last, claim.Epoch, now)
	return next - claim.First, err
}

// takeOver ends an expired lease. Rows it left in processing go back to
// pending. When that happens twice in the same stretch, the campaign is a suspect,
// and its events there may have taken the process down: from then on they are
// tried one by one, each attempt counted before it starts.
func (s *Store) takeOver(t *Tx, c *CampaignRow, w Worker, now int64) error {
	held := c.Counts.Processing
	if held > 0 {
		counted := c.suspected()
		c.Crashes++
		c.Suspect = max(c.Suspect, c.Head.Int64+held-1)
		if _, err := t.Exec(unmarkRows, c.ID, c.Head.Int64, c.Head.Int64+held-1, c.LeaseEpoch, now); err != nil {
			return fmt.Errorf("take over rows of campaign %q: %w", c.ID, err)
		}
		c.Counts.Pending, c.Counts.Processing = c.Counts.Pending+held, 0
		c.HeadStatus.String = string(outbox.Pending)
		if counted {
			if err := s.recordCrash(t, c, w, now); err != nil {
				return err
			}
		}
	}
	c.LeaseOwner, c.LeaseExpiry = "", 0
	if c.Bare() { // they were left by the request that was to apply them
		_, err := t.enqueueMissing(c, now)
		return err
	}
	return nil
}

// recordCrash writes down that applying the head took its process down, unless
// the event was applied before the process died.
func (s *Store) recordCrash(t *Tx, c *CampaignRow, w Worker, now int64) error {
	mark, err := s.WatermarkOf(context.Background(), c.ID)
	if err != nil || mark.AppliedSeq >= c.Head.Int64 {
		return err
	}
	failure := readmodel.Failure{Message: "the process died or stopped answering while it applied this event (worker " + c.LeaseOwner + ")"}
	failure.Fingerprint = "the process died while it applied this event"
	if err := s.recordFailure(t, failed{failure, c, c.Head.Int64, w, true}, now); err != nil {
		return err
	}
	c.Counts.Pending--
	*c.Count(c.HeadStatus.String)++
	return nil
}

// byCampaign is the order in which campaigns are locked.
func byCampaign(a, b Claim) int { return strings.Compare(a.CampaignID, b.CampaignID) }

const renewLease = `
update campaigns
set lease_expires_at = $4, due_at = case when due_at is null then null else cast($4 as bigint) end
where campaign_id = $1
  and lease_owner = $2
  and lease_epoch = $3`

// Renew extends the leases of a wave that takes long. It returns
// outbox.ErrLeaseLost when one of them is no longer held; the others are
// extended all the same.
func (s *Store) Renew(ctx context.Context, w Worker, claims []Claim, lease time.Duration) error {
	lost, err := s.renew(ctx, w, claims, lease)
	if err != nil {
		return fmt.Errorf("renew leases: %w", err)
	}
	if len(lost) > 0 {
		return outbox.ErrLeaseLost
	}
	return nil
}

// renew extends leases and returns the campaigns of those that are not held.
func (s *Store) renew(ctx context.Context, w Worker, claims []Claim, lease time.Duration) (lost []string, err error) {
	err = s.journal.Write(ctx, func(t *Tx) error {
		lost = nil
		expires := s.Now() + lease.Microseconds()
		var b sqldb.Batch
		for _, c := range slices.SortedFunc(slices.Values(claims), byCampaign) {
			b.Exec(func(n int64) error {
				if n == 0 {
					lost = append(lost, c.CampaignID)
				}
				return nil
			}, renewLease, c.CampaignID, w.ID, c.Epoch, expires)
		}
		return t.RunAll(&b)
	})
	return lost, err
}

// endLeases ends with a query that takes the campaigns in the order in which
// everybody does; a lock suffix and a parenthesis are to follow.
const endLeases = `
update campaigns
set lease_expires_at = $1, due_at = case when due_at is null then null else cast($1 as bigint) end
where campaign_id in (
  select campaign_id
  from campaigns
  where lease_owner <> ''
    and ($2 = '' or lease_owner = $2 or substr(lease_owner, 1, 4) = 'run ' and substr(lease_owner, length(lease_owner) - length($2) + 1) = $2)
    and lease_expires_at > $1
  order by campaign_id`

// EndLeases lets the leases of a worker that is known to be gone, and of the runs
// it worked on, run out now instead of at their time; an empty owner stands for
// all. Should the worker live after all, its epoch keeps it from doing harm.
func (s *Store) EndLeases(ctx context.Context, owner string) error {
	err := s.journal.Write(ctx, func(t *Tx) error {
		_, err := t.Exec(endLeases+t.ForUpdate+")", s.Now(), owner)
		return err
	})
	if err != nil {
		err = fmt.Errorf("end leases: %w", err)
	}
	for _, besides := range s.onEndLeases {
		err = errors.Join(err, besides(ctx, owner))
	}
	return err
}

// ClaimInline takes one campaign for a request that applies what it has
// appended: its rows as a worker does, or the events themselves where they have
// none. HoldNone says that it is claimed, HoldEmpty that everything is applied, and
// HoldLease that another works on it for the moment. A campaign that is not to be
// applied now is an outbox.ErrNotYet refusal. A claim beside an error may be held
// or not.
func (s *Store) ClaimInline(ctx context.Context, w Worker, id string, limits ClaimLimits) (claim Claim, hold outbox.Hold, err error) {
	err = s.journal.Write(ctx, func(t *Tx) error {
		now := s.Now()
		c, err := t.ExistingCampaign(id)
		if err != nil {
			return err
		}
		claim, hold, err = s.claimInline(t, c, w, limits, now)
		return err
	})
	return claim, hold, err
}

func (s *Store) claimInline(t *Tx, c *CampaignRow, w Worker, limits ClaimLimits, now int64) (claim Claim, hold outbox.Hold, err error) {
	waits := func(why string) error {
		return &outbox.Refusal{Err: outbox.ErrNotYet, Detail: "the event is appended and waits to be applied" + why}
	}
	hold, _ = c.Standing().Hold(now)
	switch {
	case !w.Serves.Includes(c.ID) && (hold == outbox.HoldNone || hold == outbox.HoldEmpty && c.Bare()):
		err = waits(fmt.Sprintf(" by another instance: this one serves only campaigns that match %s", w.Serves))
	case hold == outbox.HoldNone && c.suspected():
		err = waits(": processes died while they applied this campaign, and a worker tries its events one at a time")
	case hold == outbox.HoldNone:
		if claim, err = s.claimRows(t, c, w, limits, now); claim.Epoch == 0 {
			hold = outbox.HoldLease // it is not what it seemed; look again
		}
	case hold == outbox.HoldEmpty && c.Bare():
		claim, hold = c.leaseBare(w, limits, now), outbox.HoldNone
		err = t.Save(c, now)
	case hold == outbox.HoldPaused && c.Applied == c.HighWater:
		hold = outbox.HoldEmpty
	case hold != outbox.HoldEmpty && hold != outbox.HoldLease:
		err = waits(": " + c.View().Why(sqldb.At(now), outbox.Surroundings{Mode: s.options.Mode}))
	}
	return claim, hold, err
}

// claimRows is Claim for one campaign that is due. The claim is empty when it
// turns out that it is not.
func (s *Store) claimRows(t *Tx, c *CampaignRow, w Worker, limits ClaimLimits, now int64) (Claim, error) {
	taken, err := s.take(t, []*CampaignRow{c}, w, limits, now)
	if err != nil {
		return Claim{}, err
	}
	claims, err := t.hold(taken, w, limits.Lease, now)
	if len(claims) == 0 {
		return Claim{}, err
	}
	return claims[0], err
}

// leaseBare gives a worker the lease of a campaign whose events have no rows.
func (c *CampaignRow) leaseBare(w Worker, limits ClaimLimits, now int64) Claim {
	c.LeaseOwner, c.LeaseEpoch, c.LeaseExpiry = w.ID, c.LeaseEpoch+1, now+limits.Lease.Microseconds()
	c.Schedule(now)
	return Claim{CampaignID: c.ID, Epoch: c.LeaseEpoch, First: c.Applied + 1, Last: min(c.HighWater, c.Applied+int64(limits.Rows)),
		Bare: true, Unskipped: c.Skips == 0}
}
