package outbox

import (
	"context"
	"database/sql"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Rehearsal is the result of applying a campaign's unapplied events and rolling back.
type Rehearsal struct {
	CampaignID   string
	RehearsedSeq int64  // the highest seq that would be applied
	FailedSeq    int64  // the event that would fail; 0 when none
	Error        string // why
	Fingerprint  string
}

// RecordRehearsal stores the result of a campaign's latest rehearsal.
func (q *Queue) RecordRehearsal(ctx context.Context, r Rehearsal) error {
	return q.Journal().Write(ctx, func(t *store.Tx) error {
		failed := sql.NullInt64{Int64: r.FailedSeq, Valid: r.FailedSeq != 0}
		_, err := t.Exec(`
insert into rehearsals (campaign_id, rehearsed_seq, failed_seq, error, fingerprint, at)
values ($1, $2, $3, $4, $5, $6)
on conflict (campaign_id) do update
set rehearsed_seq = excluded.rehearsed_seq, failed_seq = excluded.failed_seq, error = excluded.error,
  fingerprint = excluded.fingerprint, at = excluded.at`, r.CampaignID, r.RehearsedSeq, failed, sqldb.Clip(r.Error, readmodel.ErrorLimit), r.Fingerprint, q.Now())
		return sqldb.Wrapf(err, "record the rehearsal of campaign %q", r.CampaignID)
	})
}

const selectRehearsal = `
select at, error, fingerprint, coalesce(failed_seq, 0)
from rehearsals
where campaign_id = $1
  and (rehearsed_seq >= $2 or failed_seq = $2)`

// rehearsal reads the result of a campaign's latest rehearsal for an event; nil where the
// rehearsal did not reach it.
func rehearsal(t *store.Tx, campaignID string, seq int64) (*campaign.Rehearsal, error) {
	var r campaign.Rehearsal
	var failed int64
	found, err := t.One([]any{sqldb.ScanTime(&r.At), &r.Error, &r.Fingerprint, &failed}, selectRehearsal, campaignID, seq)
	if err != nil || !found {
		return nil, err
	}
	if failed != seq {
		r.Error, r.Fingerprint = "", ""
	}
	return &r, nil
}

// Outstanding is a campaign with waiting rows.
type Outstanding struct {
	CampaignID   string
	AppliedSeq   int64
	HighWaterSeq int64
	Skips        int64 // active ones
}

// OutstandingCampaigns lists the campaigns after the given id that have rows and are neither
// paused nor diverged, at most limit.
func (q *Queue) OutstandingCampaigns(ctx context.Context, after string, limit int) ([]Outstanding, error) {
	return store.Reading(ctx, q.Store, "", func(t *store.Tx) ([]Outstanding, error) {
		return sqldb.All(t, func(rows sqldb.Row) (o Outstanding, err error) {
			err = rows.Scan(&o.CampaignID, &o.AppliedSeq, &o.HighWaterSeq, &o.Skips)
			return o, err
		}, `
select campaign_id, applied_seq, high_water_seq, skips
from campaigns
where campaign_id > $1
  and high_water_seq > applied_seq
  and paused_at is null
  and diverged = ''
order by campaign_id
limit $2`, after, limit)
	})
}
