package store

import (
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// RowColumns are the columns of the outbox, with alias o, for ScanRow.
const RowColumns = `o.campaign_id, o.seq, o.event_type, o.status, o.attempt_count, o.next_attempt_at, o.last_error, o.fingerprint, o.enqueued_at, o.updated_at`

// ScanRow reads RowColumns, and the columns after them into more.
func ScanRow(rows sqldb.Row, more ...any) (r campaign.Row, err error) {
	columns := []any{&r.CampaignID, &r.Seq, &r.EventType, &r.Status, &r.AttemptCount, sqldb.ScanTime(&r.NextAttemptAt),
		&r.LastError, &r.Fingerprint, sqldb.ScanTime(&r.EnqueuedAt), sqldb.ScanTime(&r.UpdatedAt)}
	err = rows.Scan(append(columns, more...)...)
	return r, err
}

// Row reads one row; found is false when there is none.
func (t *Tx) Row(campaignID string, seq int64) (r campaign.Row, found bool, err error) {
	r, found, err = sqldb.First(t, func(row sqldb.Row) (campaign.Row, error) { return ScanRow(row) },
		`select `+RowColumns+` from projection_apply_outbox o where o.campaign_id = $1 and o.seq = $2`, campaignID, seq)
	return r, found, sqldb.Wrapf(err, "read campaign %q seq %d", campaignID, seq)
}

// AttemptsShown is how many failed attempts of a row are read, the newest ones.
const AttemptsShown = 50

const selectAttempts = `
select at, attempt, worker, build, error, fingerprint, projection, projection_version, permanent, died
from attempts
where campaign_id = $1
  and seq = $2
order by at desc, attempt desc
limit $3`

// Attempts reads the newest failed attempts at an event, the last one first.
func (t *Tx) Attempts(campaignID string, seq int64) ([]campaign.Attempt, error) {
	return sqldb.All(t, func(rows sqldb.Row) (a campaign.Attempt, err error) {
		var ended int64
		err = rows.Scan(sqldb.ScanTime(&a.At), &a.Attempt, &a.Worker, &a.Build, &a.Error, &a.Fingerprint, &a.Projection, &a.ProjectionVersion, sqldb.ScanTruth(&a.Permanent), &ended)
		a.Died, a.Quarantined = ended == AttemptDied, ended == AttemptQuarantined
		return a, err
	}, selectAttempts, campaignID, seq, AttemptsShown)
}

// AttemptFailed, AttemptDied and AttemptQuarantined are how an attempt ended, in the column died of attempts.
const (
	AttemptFailed      = 0
	AttemptDied        = 1
	AttemptQuarantined = 2
)

// LastErrorLimit is the maximum size of the error kept on the row, in bytes; the attempt keeps
// up to ErrorLimit.
const LastErrorLimit = 1 << 10
