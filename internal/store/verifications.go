package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

const verificationColumns = `campaign_id, projection, at, seq, verdict, run_id, digest, added, changed, removed, first_seq, error, version, built,
  ` + outdated

// outdated is 1 for a verification v that compared with another version of the projection than the one
// loaded last, and 0 for any other, also where a version is unknown.
const outdated = `case when v.version <> '' and v.version <> (
    select l.version
    from projection_loads l
    where l.projection = v.projection
    order by l.at desc
    limit 1) then 1 else 0 end`

func scanVerification(row sqldb.Row) (v campaign.Verification, err error) {
	var built string
	err = row.Scan(&v.CampaignID, &v.Projection, sqldb.ScanTime(&v.At), &v.Seq, &v.Verdict, &v.RunID, &v.Digest,
		&v.Added, &v.Changed, &v.Removed, &v.FirstSeq, &v.Error, &v.Version, &built, sqldb.ScanTruth(&v.Outdated))
	if built != "" {
		v.Built = strings.Fields(built)
	}
	return v, err
}

const upsertVerification = `
insert into verifications (campaign_id, projection, at, seq, verdict, run_id, digest, added, changed, removed, first_seq, error, version, built)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
on conflict (campaign_id, projection) do update
set at = excluded.at, seq = excluded.seq, verdict = excluded.verdict, run_id = excluded.run_id, digest = excluded.digest,
  added = excluded.added, changed = excluded.changed, removed = excluded.removed, first_seq = excluded.first_seq,
  error = excluded.error, version = excluded.version, built = excluded.built
where excluded.at >= verifications.at`

// RecordVerifications writes verifications in order of key, so that transactions cannot
// deadlock. One older than the stored one changes nothing.
func (t *Tx) RecordVerifications(all []campaign.Verification) error {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b campaign.Verification) int {
		return cmp.Or(strings.Compare(a.CampaignID, b.CampaignID), strings.Compare(a.Projection, b.Projection))
	})
	var b sqldb.Batch
	for _, v := range all {
		b.Exec(nil, upsertVerification, v.CampaignID, v.Projection, v.At.UnixMicro(), v.Seq, string(v.Verdict), v.RunID, v.Digest, v.Added, v.Changed, v.Removed, v.FirstSeq, sqldb.Storable(v.Error), v.Version, strings.Join(v.Built, " "))
	}
	return sqldb.Wrapf(t.RunAll(&b), "note verifications")
}

// RecordVerifications writes the results of background comparisons. Those without a time get
// the current one.
func (s *Store) RecordVerifications(ctx context.Context, all []campaign.Verification) error {
	return s.journal.Write(ctx, func(t *Tx) error {
		all := slices.Clone(all)
		for i := range all {
			if all[i].At.IsZero() {
				all[i].At = sqldb.At(s.Now())
			}
		}
		return t.RecordVerifications(all)
	})
}

const (
	selectVerifications = "\nselect " + verificationColumns + "\nfrom verifications v"

	verificationsOfCampaign = selectVerifications + `
where campaign_id = $1
order by projection`

	firstFailed = selectVerifications + `
where campaign_id = $1
  and verdict = 'failed'
order by seq, projection
limit 1`

	verificationsFailed = selectVerifications + `
where verdict = 'failed'
order by campaign_id, projection
limit $1`

	verificationsDrifted = selectVerifications + `
where verdict = 'drift'
order by campaign_id, projection
limit $1`

	foundDrift = `
select projection, verdict, count(*), min(at), min(error)
from verifications
where verdict in ('drift', 'failed')
group by projection, verdict
order by verdict, count(*) desc, projection
limit $1`

	driftBuilt = `
select projection, built, count(*)
from verifications v
where verdict = 'drift'
  and ` + outdated + ` = 0
group by projection, built
order by count(*) desc, projection, built
limit $1`
)

// DriftBuilt sums up by projection, and by what made their rows, the campaigns that differ from the loaded
// version; at most event.MaxPage, those of most campaigns.
func (s *Store) DriftBuilt(ctx context.Context) ([]campaign.DriftBuilt, error) {
	return Reading(ctx, s, "sum up what built rows that differ", func(t *Tx) ([]campaign.DriftBuilt, error) {
		return sqldb.All(t, func(row sqldb.Row) (d campaign.DriftBuilt, err error) {
			var built string
			err = row.Scan(&d.Projection, &built, &d.Campaigns)
			d.Versions = strings.Fields(built)
			return d, err
		}, driftBuilt, event.MaxPage)
	})
}

// FoundDrift sums up by projection what the last verifications found: drift first, then those that failed; at
// most event.MaxPage.
func (s *Store) FoundDrift(ctx context.Context) ([]campaign.FoundDrift, error) {
	return Reading(ctx, s, "sum up the findings of verifications", func(t *Tx) ([]campaign.FoundDrift, error) {
		return sqldb.All(t, func(row sqldb.Row) (f campaign.FoundDrift, err error) {
			err = row.Scan(&f.Projection, &f.Verdict, &f.Campaigns, sqldb.ScanTime(&f.Since), &f.Error)
			return f, err
		}, foundDrift, event.MaxPage)
	})
}

// Verifications lists the last comparison of each projection of a campaign with its journal, by
// projection; projections never compared are missing. An unknown campaign is
// event.ErrNotFound.
func (s *Store) Verifications(ctx context.Context, campaignID string) ([]campaign.Verification, error) {
	return Reading(ctx, s, "", func(t *Tx) ([]campaign.Verification, error) {
		if _, err := t.ExistingCampaign(campaignID); err != nil {
			return nil, err
		}
		return t.verifications(verificationsOfCampaign, campaignID)
	})
}

// Drifted lists the projections that differed from their journal when last compared, by
// campaign, at most limit: 0 means 50, and 200 is the maximum.
func (s *Store) Drifted(ctx context.Context, limit int) ([]campaign.Verification, error) {
	return s.verified(ctx, verificationsDrifted, limit)
}

// Unverified lists those that could not be compared when last tried, as Drifted does.
func (s *Store) Unverified(ctx context.Context, limit int) ([]campaign.Verification, error) {
	return s.verified(ctx, verificationsFailed, limit)
}

func (s *Store) verified(ctx context.Context, query string, limit int) ([]campaign.Verification, error) {
	return Reading(ctx, s, "", func(t *Tx) ([]campaign.Verification, error) {
		return t.verifications(query, sqldb.PageLimit(limit, event.MaxPage))
	})
}

// setFindings fills in the findings of a campaign's last verification.
func (t *Tx) setFindings(c *campaign.Campaign) error {
	if _, err := t.One([]any{&c.Drifted, &c.OutdatedDrift, &c.Unverifiable, &c.OutdatedFailed}, countFound, c.CampaignID); err != nil || c.Unverifiable == 0 {
		return err
	}
	all, err := t.verifications(firstFailed, c.CampaignID)
	if len(all) > 0 {
		c.Unverified = &all[0]
	}
	return err
}

const countFound = `
select count(*) filter (where verdict = 'drift'),
  count(*) filter (where verdict = 'drift' and ` + outdated + ` = 1),
  count(*) filter (where verdict = 'failed'),
  count(*) filter (where verdict = 'failed' and ` + outdated + ` = 1)
from verifications v
where campaign_id = $1`

func (t *Tx) verifications(query string, args ...any) ([]campaign.Verification, error) {
	all, err := sqldb.All(t, scanVerification, query, args...)
	return all, sqldb.Wrapf(err, "read verifications")
}
