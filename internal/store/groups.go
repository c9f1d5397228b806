package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// groupAttempts is the number of grouped rows whose attempts are read, shared by the errors.
const groupAttempts = 1_000

// Errors are told apart first, and then some rows of each are read: otherwise a common error would hide a rare
// one.
const (
	nextTried = `
select fingerprint
from projection_apply_outbox
where attempt_count > 0
  and fingerprint > $1
order by fingerprint
limit 1`

	nextRehearsed = `
select fingerprint
from rehearsals
where failed_seq is not null
  and fingerprint > $1
order by fingerprint
limit 1`

	// The rows that failed with $1, at most $2 from each end: dead ones are due since they died, failed ones
	// later.
	triedRows = `
from (
  select campaign_id, seq
  from (
    select campaign_id, seq
    from projection_apply_outbox
    where fingerprint = $1
      and attempt_count > 0
    order by next_attempt_at, seq, campaign_id
    limit $2) as early
  union
  select campaign_id, seq
  from (
    select campaign_id, seq
    from projection_apply_outbox
    where fingerprint = $1
      and attempt_count > 0
    order by next_attempt_at desc, seq desc, campaign_id desc
    limit $2) as late
) as k
cross join projection_apply_outbox o`
	ofTried = `
where o.campaign_id = k.campaign_id
  and o.seq = k.seq`

	selectGroup = `
select o.status, o.event_type, min(o.last_error), count(*)` + triedRows + ofTried + `
group by o.status, o.event_type`

	// The campaigns whose head is one of the rows.
	selectGroupHeads = `
select o.status, o.event_type, o.next_attempt_at, c.campaign_id, c.head_seq, c.high_water_seq - c.applied_seq,
  c.pending + c.processing + c.failed + c.dead - 1, c.oldest_enqueued_at` + triedRows + `
join campaigns c on c.campaign_id = k.campaign_id and c.head_seq = k.seq` + ofTried + `
  and o.status <> 'pending'`

	// The attempts of the projection that a row failed in, not those of others that failed at the same event.
	selectGroupAttempts = `
select build, projection, projection_version, count(*), sum(case when fingerprint = $1 then 1 else 0 end), sum(permanent), min(at), max(at), sum(case when place = 1 then 1 else 0 end)
from (
  select a.build, a.projection, a.projection_version, a.fingerprint, a.permanent, a.at,
    row_number() over alike as place, first_value(a.projection) over alike as failing` + triedRows + `
  join attempts a on a.campaign_id = k.campaign_id and a.seq = k.seq` + ofTried + `
    and o.status <> 'pending'
  window alike as (partition by a.campaign_id, a.seq order by case when a.fingerprint = $1 then 0 else 1 end, a.at desc)
) as made
where projection = failing
group by build, projection, projection_version
order by max(at) desc, build desc, projection_version desc`

	// The events that would fail, at most $2 of the campaigns, and whether each still waits untried.
	selectGroupRehearsed = `
select r.campaign_id, r.failed_seq, r.error, r.at, c.high_water_seq - r.failed_seq + 1, coalesce(o.event_type, ''), o.enqueued_at,
  coalesce(` + rehearsedHolds + ` and o.status = 'pending', false)
from (
  select campaign_id, failed_seq, error, at
  from rehearsals
  where fingerprint = $1
    and failed_seq is not null
  order by campaign_id
  limit $2) as r
join campaigns c on c.campaign_id = r.campaign_id
left join projection_apply_outbox o on o.campaign_id = r.campaign_id and o.seq = r.failed_seq`

	// A rehearsal says nothing once its campaign goes on, or is stopped.
	rehearsedHolds = `coalesce(c.head_status, '') = 'pending' and c.paused_at is null and c.diverged = ''`

	selectRehearsed = `
select coalesce(sum(r.rehearsed_seq - c.applied_seq + case when r.failed_seq is null then 0 else 1 end), 0), count(r.failed_seq)
from rehearsals r
cross join campaigns c
where c.campaign_id = r.campaign_id
  and r.rehearsed_seq >= c.applied_seq
  and ` + rehearsedHolds
)

// group is an error group while it is read.
type group struct {
	campaign.ErrorGroup
	types, built map[string]int64
	now          time.Time
	looked       int64 // rows read
	rehearsed    int64 // rehearsals read
}

// ErrorGroups groups the failed and dead rows, those being retried, and the events that a worker in shadow mode
// found failing, by error. The result is shared by all callers: up to a second old, or older when reading takes
// long. Callers must not change it.
func (s *Store) ErrorGroups(ctx context.Context) (campaign.ErrorGroups, error) {
	all, err := s.groups.Get(ctx, func() (campaign.ErrorGroups, error) { return s.readGroups(context.WithoutCancel(ctx)) })
	if err != nil {
		return campaign.ErrorGroups{}, fmt.Errorf("group errors: %w", err)
	}
	return all, nil
}

func (s *Store) readGroups(ctx context.Context) (all campaign.ErrorGroups, err error) {
	now := sqldb.At(s.Now())
	err = s.journal.Read(ctx, func(t *Tx) error {
		fingerprints, err := t.Fingerprints(event.MaxCauses + 1)
		if err != nil {
			return err
		}
		all = campaign.ErrorGroups{Groups: []campaign.ErrorGroup{}, More: len(fingerprints) > event.MaxCauses}
		fingerprints = fingerprints[:min(len(fingerprints), event.MaxCauses)]
		found, err := t.readEach(fingerprints, now)
		if err != nil {
			return err
		}
		for _, g := range found {
			if len(g.types) > 0 {
				all.Groups = append(all.Groups, g.ErrorGroup)
			}
		}
		_, err = t.One([]any{&all.Rehearsed.Events, &all.Rehearsed.Failing}, selectRehearsed)
		return err
	})
	slices.SortFunc(all.Groups, campaign.CompareGroups)
	return all, err
}

// Fingerprints are those of the rows that have failed and not been requeued since, and of the events that
// would fail as rehearsed, at most limit of each.
func (t *Tx) Fingerprints(limit int) ([]string, error) {
	var all []string
	for _, query := range []string{nextTried, nextRehearsed} {
		found, err := sqldb.Apart(t, 1, limit, query)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Concat(found...)...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// readEach reads errors. What those of few rows leave over of an equal share is for the others.
func (t *Tx) readEach(fingerprints []string, now time.Time) ([]group, error) {
	found, all := make([]group, len(fingerprints)), make([]int, len(fingerprints))
	for i := range all {
		all[i] = i
	}
	read := func(which []int, rows int) (capped []int, left int, err error) {
		left = rows
		for _, i := range which {
			g := &found[i]
			if err := t.readGroup(g, fingerprints[i], rows/2/len(which), groupAttempts/2/len(which), now); err != nil {
				return nil, 0, err
			}
			if g.Capped {
				capped = append(capped, i)
			} else {
				left -= int(g.looked + g.rehearsed)
			}
		}
		return capped, left, nil
	}
	capped, left, err := read(all, event.MaxGrouped)
	if err == nil && len(capped) > 0 && len(capped) < len(all) {
		_, _, err = read(capped, left)
	}
	return found, err
}

// readGroup reads rows of an error, at most each from both ends, attempts of some of them, the note on it, and
// whether it happened before.
func (t *Tx) readGroup(g *group, fingerprint string, each, tried int, now time.Time) error {
	*g = group{ErrorGroup: campaign.ErrorGroup{Fingerprint: fingerprint, Tried: []campaign.Tried{}, Worst: []campaign.CauseCampaign{}}, types: map[string]int64{}, built: map[string]int64{}, now: now}
	var b sqldb.Batch
	b.Each(g.addRows, selectGroup, g.Fingerprint, each)
	b.Each(g.addHead, selectGroupHeads, g.Fingerprint, each)
	b.Each(g.addAttempts, selectGroupAttempts, g.Fingerprint, max(1, tried))
	b.Each(g.addRehearsed, selectGroupRehearsed, g.Fingerprint, each)
	b.Each(func(row sqldb.Row) (err error) {
		g.Note, err = scanNote(row)
		return err
	}, selectNote, g.Fingerprint)
	err := t.RunAll(&b)
	g.Capped = g.looked == int64(2*each) || g.rehearsed == int64(each)
	g.EventTypes, g.Builds = tallies(g.types), tallies(g.built)
	if err == nil && g.FirstAt != nil {
		_, err = t.One([]any{sqldb.ScanTimeOrNil(&g.EarlierAt)}, selectEarlier, g.FirstAt.UnixMicro(), earlierAttempts, g.Fingerprint)
	}
	return err
}

// addRows counts rows of one status and event type.
func (g *group) addRows(row sqldb.Row) error {
	var status, eventType, example string
	var rows int64
	if err := row.Scan(&status, &eventType, &example, &rows); err != nil {
		return err
	}
	g.looked += rows
	switch event.Status(status) {
	case event.Dead:
		g.Dead += rows
	case event.Failed:
		g.Failed += rows
	case event.Processing:
		g.Retrying += rows
	default: // released before it was retried
		return nil
	}
	g.types[eventType] += rows
	g.Example = cmp.Or(g.Example, example)
	return nil
}

func (g *group) addHead(row sqldb.Row) error {
	var c campaign.CauseCampaign
	var next *time.Time
	var behind int64
	err := row.Scan(&c.HeadStatus, &c.EventType, sqldb.ScanTimeOrNil(&next), &c.CampaignID, &c.HeadSeq, &c.EventsWaiting, &behind, sqldb.ScanTimeOrNil(&c.OldestAt))
	if err != nil {
		return err
	}
	c.EventsWaiting = max(0, c.EventsWaiting) // a diverged campaign's watermark may be ahead
	switch c.HeadStatus {
	case event.Dead:
		g.Released += behind
	case event.Failed:
		c.NextAttemptAt = next
	}
	g.AddCampaign(c.Scored(g.now))
	return nil
}

// addRehearsed adds an event that would fail, as a worker in shadow mode found, if it still waits untried.
func (g *group) addRehearsed(row sqldb.Row) error {
	c := campaign.CauseCampaign{HeadStatus: event.Pending}
	var example string
	var at time.Time
	var holds bool
	err := row.Scan(&c.CampaignID, &c.HeadSeq, &example, sqldb.ScanTime(&at), &c.EventsWaiting, &c.EventType, sqldb.ScanTimeOrNil(&c.OldestAt), &holds)
	g.rehearsed++
	if err != nil || !holds {
		return err
	}
	g.Rehearsed++
	g.types[c.EventType]++
	g.Example = cmp.Or(g.Example, example)
	g.happened(at)
	g.AddCampaign(c.Scored(g.now))
	return nil
}

func (g *group) addAttempts(row sqldb.Row) error {
	var tried campaign.Tried
	var alike int64
	var first time.Time
	err := row.Scan(&tried.Build, &tried.Projection, &tried.ProjectionVersion, &tried.Attempts, &alike, &tried.Permanent, sqldb.ScanTime(&first), sqldb.ScanTime(&tried.LastAt), &tried.Rows)
	if err != nil {
		return err
	}
	g.Attempts += tried.Attempts
	g.Alike += alike
	g.Permanent += tried.Permanent
	g.built[tried.Build] += tried.Attempts
	g.Tried = append(g.Tried, tried)
	if g.FirstAt == nil || first.Before(*g.FirstAt) {
		g.FirstAt = &first
	}
	g.happened(tried.LastAt)
	return nil
}

// happened raises the time at which the error was last seen.
func (g *group) happened(at time.Time) {
	if g.LastAt == nil || at.After(*g.LastAt) {
		g.LastAt = &at
	}
}

// earlierAttempts is how many failed attempts before the first one of an error are searched for it.
const earlierAttempts = 500

const selectEarlier = `
select min(at)
from (
  select at, fingerprint
  from attempts
  where at < $1
  order by at desc
  limit $2
) as before
where fingerprint = $3`

func tallies(counts map[string]int64) []campaign.Tally {
	all := make([]campaign.Tally, 0, len(counts))
	for name, n := range counts {
		all = append(all, campaign.Tally{Name: name, Count: n})
	}
	slices.SortFunc(all, func(a, b campaign.Tally) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return all
}

const selectNote = `
select note, noted_by, noted_at
from group_notes
where fingerprint = $1`

func scanNote(row sqldb.Row) (*campaign.GroupNote, error) {
	var n campaign.GroupNote
	err := row.Scan(&n.Note, &n.By, sqldb.ScanTime(&n.At))
	return &n, err
}

const upsertNote = `
insert into group_notes (fingerprint, note, noted_by, noted_at)
values ($1, $2, $3, $4)
on conflict (fingerprint) do update
set note = excluded.note, noted_by = excluded.noted_by, noted_at = excluded.noted_at`

// groupExists reports whether a row failed with a fingerprint, or an event would.
func (t *Tx) groupExists(fingerprint string) (bool, error) {
	return t.One([]any{new(int64)}, `
select 1
from projection_apply_outbox
where fingerprint = $1
  and attempt_count > 0
union all
select 1
from rehearsals
where fingerprint = $1
  and failed_seq is not null
limit 1`, fingerprint)
}

// SetGroupNote sets the note of the rows that fail with a fingerprint, now or later; an empty
// note deletes it and returns nil. A fingerprint without rows is event.ErrNotFound, unless
// there is a note to change.
func (s *Store) SetGroupNote(ctx context.Context, o operator.Command, fingerprint, note string) (*campaign.GroupNote, error) {
	type noted struct {
		Fingerprint string `json:"fingerprint"`
		Note        string `json:"note"`
	}
	pinned := noted{fingerprint, note}
	a := &Change{Command: o, Action: operator.ActionNoteErrors, After: pinned, Asked: pinned}
	switch {
	case fingerprint == "":
		return nil, s.Refused(ctx, a, event.Invalid("fingerprint", "a note needs the fingerprint of an error"))
	case len(note) > event.MaxNote:
		a.Asked = noted{fingerprint, Kept(note, event.MaxNote)}
		return nil, s.Refused(ctx, a, event.Invalid("note", "the note is %d bytes long; the limit is %d", len(note), event.MaxNote))
	}
	result, err := Perform(ctx, s, a, func(t *Tx, now int64) (*campaign.GroupNote, error) {
		before, _, err := sqldb.First(t, scanNote, selectNote, fingerprint)
		if err != nil {
			return nil, err
		}
		if before != nil {
			a.Before = noted{fingerprint, before.Note}
		} else if known, err := t.groupExists(fingerprint); err != nil {
			return nil, err
		} else if !known {
			return nil, event.NotFound("no row failed with the fingerprint %q", Kept(fingerprint, event.MaxIDLength))
		}
		if note == "" {
			_, err = t.Exec(`delete from group_notes where fingerprint = $1`, fingerprint)
			return nil, err
		}
		_, err = t.Exec(upsertNote, fingerprint, note, o.By.Name, now)
		return &campaign.GroupNote{Note: note, By: o.By.Name, At: sqldb.At(now)}, err
	})
	return result, err
}
