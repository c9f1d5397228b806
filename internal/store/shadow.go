package store

import (
	"context"
	"database/sql"
	"fmt"

	"outboxweb/internal/readmodel"
	"outboxweb/internal/sqldb"
)

// Rehearsal is what applying a campaign's outstanding events would have done.
type Rehearsal struct {
	CampaignID   string
	RehearsedSeq int64  // the highest seq that would be applied
	FailedSeq    int64  // the event that would fail; 0 when none
	Error        string // why
	Fingerprint  string
}

// RecordRehearsal keeps the outcome of a campaign's latest rehearsal.
func (s *Store) RecordRehearsal(ctx context.Context, r Rehearsal) error {
	return s.journal.Write(ctx, func(t *Tx) error {
		failed := sql.NullInt64{Int64: r.FailedSeq, Valid: r.FailedSeq != 0}
		_, err := t.Exec(`
insert into rehearsals (campaign_id, rehearsed_seq, failed_seq, error, fingerprint, at)
values ($1, $2, $3, $4, $5, $6)
on conflict (campaign_id) do update
set rehearsed_seq = excluded.rehearsed_seq, failed_seq = excluded.failed_seq, error = excluded.error,
  fingerprint = excluded.fingerprint, at = excluded.at`, r.CampaignID, r.RehearsedSeq, failed, sqldb.Clip(r.Error, readmodel.ErrorLimit), r.Fingerprint, s.Now())
		if err != nil {
			return fmt.Errorf("record the rehearsal of campaign %q: %w", r.CampaignID, err)
		}
		return nil
	})
}

// Rehearsals reads the outcomes of the latest rehearsals, by campaign id.
func (s *Store) Rehearsals(ctx context.Context) (map[string]Rehearsal, error) {
	all := make(map[string]Rehearsal)
	err := s.journal.Read(ctx, func(t *Tx) error {
		return t.Each(func(rows sqldb.Row) error {
			var r Rehearsal
			var failed sql.NullInt64
			err := rows.Scan(&r.CampaignID, &r.RehearsedSeq, &failed, &r.Error, &r.Fingerprint)
			r.FailedSeq = failed.Int64
			all[r.CampaignID] = r
			return err
		}, `select campaign_id, rehearsed_seq, failed_seq, error, fingerprint from rehearsals`)
	})
	return all, err
}

// Outstanding is a campaign with rows that wait.
type Outstanding struct {
	CampaignID   string
	AppliedSeq   int64
	HighWaterSeq int64
	Skips        int64 // that stand
}

// OutstandingCampaigns lists the campaigns that have rows and are neither
// paused nor diverged, after the given id, at most limit.
func (s *Store) OutstandingCampaigns(ctx context.Context, after string, limit int) ([]Outstanding, error) {
	var all []Outstanding
	err := s.journal.Read(ctx, func(t *Tx) error {
		return t.Each(func(rows sqldb.Row) error {
			var o Outstanding
			err := rows.Scan(&o.CampaignID, &o.AppliedSeq, &o.HighWaterSeq, &o.Skips)
			all = append(all, o)
			return err
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
	return all, err
}
