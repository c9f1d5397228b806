package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Contradictions calls found, in order of seq, for each event that the projections and the
// skips disagree about: one that is skipped and was applied, or one that was skipped over and
// has no active skip.
func Contradictions(standing []event.Skip, marks readmodel.SkipMarks, applied int64, found func(seq int64, what string)) {
	known := make(map[int64]int64, len(standing))
	for _, k := range standing {
		known[k.Seq] = k.ID
	}
	seqs := maps.Clone(known)
	maps.Copy(seqs, marks)
	for _, seq := range slices.Sorted(maps.Keys(seqs)) {
		id, skipped := known[seq]
		mark, marked := marks[seq]
		switch {
		case marked && (!skipped || mark != id):
			found(seq, fmt.Sprintf("the projections skipped event %d, but that skip is not in effect", seq))
		case skipped && !marked && seq <= applied:
			found(seq, fmt.Sprintf("event %d is skipped, but the projections did not skip it", seq))
		}
	}
}

// Contradiction is the first contradiction; empty when there is none.
func Contradiction(standing []event.Skip, marks readmodel.SkipMarks, applied int64) (reason string) {
	Contradictions(standing, marks, applied, func(_ int64, what string) {
		if reason == "" {
			reason = what
		}
	})
	return reason
}

// Unsettled reports whether a skip's applied mark disagrees with the watermark.
func Unsettled(standing []event.Skip, applied int64) bool {
	return slices.ContainsFunc(standing, func(k event.Skip) bool { return (k.AppliedAt != nil) != (k.Seq <= applied) })
}

// finishUnskips sets the watermark back over events whose skips have been reverted since: the
// projections are then older than the journal, as in a backup, which copies them first. It
// returns the resulting watermark and marks.
func (q *Queue) finishUnskips(t *store.Tx, c *store.CampaignRow, w readmodel.Watermark, marks readmodel.SkipMarks) (readmodel.Watermark, readmodel.SkipMarks, error) {
	for {
		skip, found, err := undoneSkip(t, c.ID, w.AppliedSeq, marks[w.AppliedSeq])
		if err != nil || !found {
			return w, marks, err
		}
		hashes, err := chainHashes(t, c.ID, skip.Seq)
		if err == nil {
			err = q.raiseFence(c, func(a *readmodel.ApplyTx, now readmodel.Watermark) error {
				if now.AppliedSeq != w.AppliedSeq {
					return fmt.Errorf("the watermark of campaign %q moved: %w", c.ID, event.ErrBusy)
				}
				return a.SetBack(skip, hashes, c.LeaseEpoch)
			})
		}
		if err != nil {
			return w, marks, err
		}
		if w, marks, err = q.ReadModel().Position(context.Background(), c.ID); err != nil {
			return w, marks, err
		}
	}
}

// undoneSkip reads a reverted skip. No skip has the id 0.
func undoneSkip(t *store.Tx, campaign string, seq, id int64) (skip event.Skip, found bool, err error) {
	if id == 0 {
		return skip, false, nil
	}
	skip, found, err = sqldb.First(t, store.ScanSkip, `
select `+store.SkipColumns+`
from skips
where id = $1
  and campaign_id = $2
  and seq = $3
  and undone_at is not null`, id, campaign, seq)
	return skip, found, sqldb.Wrapf(err, "read the skip of campaign %q seq %d", campaign, seq)
}

const reopenSkips = `
update skips
set applied_at = null
where campaign_id = $1
  and seq > $2
  and applied_at is not null
  and undone_at is null`

// repairSkips corrects the applied mark of each skip and reports whether any was wrong.
func repairSkips(t *store.Tx, c *store.CampaignRow, w readmodel.Watermark, now int64) (bool, error) {
	passed, err := t.Exec(passSkips, c.ID, w.AppliedSeq, now)
	if err != nil {
		return false, fmt.Errorf("settle skips of campaign %q: %w", c.ID, err)
	}
	reopened, err := t.Exec(reopenSkips, c.ID, w.AppliedSeq)
	return passed+reopened > 0, sqldb.Wrapf(err, "reopen skips of campaign %q", c.ID)
}
