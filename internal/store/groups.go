package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// groupAttempts is the number of grouped rows whose attempts are read: the first row of every
// error, then the second of every error, and so on.
const groupAttempts = 1_000

// triedRows selects columns of rows that have failed or died, or are being retried, at most $1.
func triedRows(status, columns string) string {
	return `(
  select campaign_id, seq, fingerprint` + columns + `
  from projection_apply_outbox
  where status = '` + status + `'
    and attempt_count > 0
    and fingerprint <> ''
  order by next_attempt_at, seq, campaign_id
  limit $1
) as o`
}

func selectGroups(status string) string {
	return `
select o.fingerprint, o.event_type, min(o.last_error), count(*)
from ` + triedRows(status, ", event_type, last_error") + `
group by o.fingerprint, o.event_type`
}

// selectGroupHeads selects the campaigns whose head is one of the grouped rows.
func selectGroupHeads(status string) string {
	return `
select o.fingerprint, o.event_type, o.next_attempt_at, c.campaign_id, c.head_seq, c.high_water_seq - c.applied_seq,
  c.pending + c.processing + c.failed + c.dead - 1, c.oldest_enqueued_at
from ` + triedRows(status, ", event_type, next_attempt_at") + `
join campaigns c on c.campaign_id = o.campaign_id and c.head_seq = o.seq`
}

// selectGroupAttempts selects the attempts of the projection that a row failed in, not those of others
// that failed at the same event.
func selectGroupAttempts(status string) string {
	return `
select died_of, build, projection, projection_version, count(*), sum(case when fingerprint = died_of then 1 else 0 end), sum(permanent), min(at), max(at), sum(case when place = 1 then 1 else 0 end)
from (
  select o.fingerprint as died_of, a.build, a.projection, a.projection_version, a.fingerprint, a.permanent, a.at,
    row_number() over alike as place, first_value(a.projection) over alike as failing
  from (
    select campaign_id, seq, fingerprint
    from (
      select campaign_id, seq, fingerprint, row_number() over (partition by fingerprint order by next_attempt_at, seq, campaign_id) as place
      from ` + triedRows(status, ", next_attempt_at") + `
    ) as placed
    order by place, campaign_id, seq
    limit $2
  ) as o
  join attempts a on a.campaign_id = o.campaign_id and a.seq = o.seq
  window alike as (partition by a.campaign_id, a.seq order by case when a.fingerprint = o.fingerprint then 0 else 1 end, a.at desc)
) as made
where projection = failing
group by died_of, build, projection, projection_version`
}

// groups merges the results of the queries by fingerprint.
type groups struct {
	by    map[string]*outbox.ErrorGroup
	types map[string]map[string]int64
	built map[string]map[string]int64
}

func (g *groups) of(fingerprint string) *outbox.ErrorGroup {
	if g.by[fingerprint] == nil {
		g.by[fingerprint] = &outbox.ErrorGroup{Fingerprint: fingerprint, Tried: []outbox.Tried{}, Worst: []outbox.CauseCampaign{}}
		g.types[fingerprint], g.built[fingerprint] = map[string]int64{}, map[string]int64{}
	}
	return g.by[fingerprint]
}

// ErrorGroups groups the failed and dead rows, and those being retried, by error. The result is shared by all callers: up
// to a second old, or older when reading takes long. Callers must not change it.
func (s *Store) ErrorGroups(ctx context.Context) (outbox.ErrorGroups, error) {
	all, err := s.groups.Get(ctx, func() (outbox.ErrorGroups, error) { return s.readGroups(context.WithoutCancel(ctx)) })
	if err != nil {
		return outbox.ErrorGroups{}, fmt.Errorf("group errors: %w", err)
	}
	return all, nil
}

func (s *Store) readGroups(ctx context.Context) (outbox.ErrorGroups, error) {
	g := groups{by: map[string]*outbox.ErrorGroup{}, types: map[string]map[string]int64{}, built: map[string]map[string]int64{}}
	capped, now := false, sqldb.At(s.Now())
	err := s.journal.Read(ctx, func(t *Tx) error {
		for _, status := range []outbox.Status{outbox.Dead, outbox.Failed, outbox.Processing} {
			rows, err := t.groupRows(&g, status)
			if err == nil {
				err = t.groupHeads(&g, status, now)
			}
			if err == nil {
				err = t.groupAttempts(&g, status)
			}
			if err != nil {
				return err
			}
			capped = capped || rows == outbox.MaxGrouped
		}
		return t.groupDetails(&g)
	})
	return outbox.ErrorGroups{Groups: g.sorted(), Capped: capped}, err
}

func (t *Tx) groupRows(g *groups, status outbox.Status) (total int64, err error) {
	err = t.Each(func(row sqldb.Row) error {
		var fingerprint, eventType, example string
		var rows int64
		if err := row.Scan(&fingerprint, &eventType, &example, &rows); err != nil {
			return err
		}
		total += rows
		group := g.of(fingerprint)
		g.types[fingerprint][eventType] += rows
		group.Example = cmp.Or(group.Example, example)
		switch status {
		case outbox.Dead:
			group.Dead += rows
		case outbox.Failed:
			group.Failed += rows
		default:
			group.Retrying += rows
		}
		return nil
	}, selectGroups(string(status)), outbox.MaxGrouped)
	return total, err
}

func (t *Tx) groupHeads(g *groups, status outbox.Status, now time.Time) error {
	return t.Each(func(row sqldb.Row) error {
		c := outbox.CauseCampaign{HeadStatus: status}
		var fingerprint string
		var next, behind int64
		var oldest sql.NullInt64
		err := row.Scan(&fingerprint, &c.EventType, &next, &c.CampaignID, &c.HeadSeq, &c.EventsWaiting, &behind, &oldest)
		if err != nil {
			return err
		}
		c.EventsWaiting = max(0, c.EventsWaiting) // a diverged campaign's watermark may be ahead
		c.OldestAt = sqldb.AtOrNil(oldest)
		group := g.of(fingerprint)
		switch status {
		case outbox.Dead:
			group.Released += behind
		case outbox.Failed:
			c.NextAttemptAt = sqldb.AtOrNil(sql.NullInt64{Int64: next, Valid: true})
		}
		group.AddCampaign(c.Scored(now))
		return nil
	}, selectGroupHeads(string(status)), outbox.MaxGrouped)
}

func (t *Tx) groupAttempts(g *groups, status outbox.Status) error {
	return t.Each(func(row sqldb.Row) error {
		var fingerprint string
		var tried outbox.Tried
		var alike, first, last int64
		err := row.Scan(&fingerprint, &tried.Build, &tried.Projection, &tried.ProjectionVersion, &tried.Attempts, &alike, &tried.Permanent, &first, &last, &tried.Rows)
		if err != nil {
			return err
		}
		tried.LastAt = sqldb.At(last)
		group := g.of(fingerprint)
		group.Attempts += tried.Attempts
		group.Alike += alike
		group.Permanent += tried.Permanent
		g.built[fingerprint][tried.Build] += tried.Attempts
		group.Tried = addTried(group.Tried, tried)
		if group.FirstAt == nil || sqldb.At(first).Before(*group.FirstAt) {
			group.FirstAt = sqldb.AtOrNil(sql.NullInt64{Int64: first, Valid: true})
		}
		if group.LastAt == nil || sqldb.At(last).After(*group.LastAt) {
			group.LastAt = sqldb.AtOrNil(sql.NullInt64{Int64: last, Valid: true})
		}
		return nil
	}, selectGroupAttempts(string(status)), outbox.MaxGrouped, groupAttempts)
}

// addTried adds the attempt details of rows of one status to the others of their group.
func addTried(all []outbox.Tried, one outbox.Tried) []outbox.Tried {
	for i := range all {
		known := &all[i]
		if known.Build == one.Build && known.Projection == one.Projection && known.ProjectionVersion == one.ProjectionVersion {
			known.Attempts += one.Attempts
			known.Permanent += one.Permanent
			known.Rows += one.Rows
			if one.LastAt.After(known.LastAt) {
				known.LastAt = one.LastAt
			}
			return all
		}
	}
	return append(all, one)
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

// groupDetails reads the notes on errors, and whether they happened before.
func (t *Tx) groupDetails(g *groups) error {
	var b sqldb.Batch
	for fingerprint, group := range g.by {
		if group.FirstAt != nil {
			b.Each(func(row sqldb.Row) error {
				var at sql.NullInt64
				err := row.Scan(&at)
				group.EarlierAt = sqldb.AtOrNil(at)
				return err
			}, selectEarlier, group.FirstAt.UnixMicro(), earlierAttempts, fingerprint)
		}
		b.Each(func(row sqldb.Row) error {
			n, err := scanNote(row)
			group.Note = n
			return err
		}, selectNote, fingerprint)
	}
	return t.RunAll(&b)
}

func (g *groups) sorted() []outbox.ErrorGroup {
	all := make([]outbox.ErrorGroup, 0, len(g.by))
	for fingerprint, group := range g.by {
		group.EventTypes, group.Builds = tallies(g.types[fingerprint]), tallies(g.built[fingerprint])
		slices.SortFunc(group.Tried, func(a, b outbox.Tried) int {
			return cmp.Or(b.LastAt.Compare(a.LastAt), cmp.Compare(b.Build, a.Build), cmp.Compare(b.ProjectionVersion, a.ProjectionVersion))
		})
		all = append(all, *group)
	}
	slices.SortFunc(all, outbox.CompareGroups)
	return all
}

func tallies(counts map[string]int64) []outbox.Tally {
	all := make([]outbox.Tally, 0, len(counts))
	for name, n := range counts {
		all = append(all, outbox.Tally{Name: name, Count: n})
	}
	slices.SortFunc(all, func(a, b outbox.Tally) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	return all
}

const selectNote = `
select note, noted_by, noted_at
from group_notes
where fingerprint = $1`

func scanNote(row sqldb.Row) (*outbox.GroupNote, error) {
	var n outbox.GroupNote
	var when int64
	err := row.Scan(&n.Note, &n.By, &when)
	n.At = sqldb.At(when)
	return &n, err
}

const upsertNote = `
insert into group_notes (fingerprint, note, noted_by, noted_at)
values ($1, $2, $3, $4)
on conflict (fingerprint) do update
set note = excluded.note, noted_by = excluded.noted_by, noted_at = excluded.noted_at`

// selectKnown counts the rows that selectGroups reads, and those of them that have a
// fingerprint.
func selectKnown(status string) string {
	return `
select count(*), coalesce(sum(case when fingerprint = $2 then 1 else 0 end), 0)
from (
  select fingerprint
  from projection_apply_outbox
  where status = '` + status + `'
    and attempt_count > 0
  order by next_attempt_at, seq, campaign_id
  limit $1
) as o`
}

// groupExists reports whether a row failed with a fingerprint, among the rows that groups are
// built from; it is true when there are more rows than that, since any of them may match.
func (t *Tx) groupExists(fingerprint string) (bool, error) {
	for _, status := range []outbox.Status{outbox.Dead, outbox.Failed} {
		var rows, alike int64
		if _, err := t.One([]any{&rows, &alike}, selectKnown(string(status)), outbox.MaxGrouped, fingerprint); err != nil {
			return false, err
		}
		if alike > 0 || rows == outbox.MaxGrouped {
			return true, nil
		}
	}
	return false, nil
}

// SetGroupNote sets the note of the rows that fail with a fingerprint, now or later; an empty
// note deletes it and returns nil. A fingerprint without rows is outbox.ErrNotFound, unless
// there is a note to change.
func (s *Store) SetGroupNote(ctx context.Context, o outbox.Command, fingerprint, note string) (*outbox.GroupNote, error) {
	type noted struct {
		Fingerprint string `json:"fingerprint"`
		Note        string `json:"note"`
	}
	pinned := noted{fingerprint, note}
	a := &Change{Command: o, Action: outbox.ActionNoteErrors, After: pinned, Asked: pinned}
	switch {
	case fingerprint == "":
		return nil, s.Refused(ctx, a, outbox.Invalid("fingerprint", "a note needs the fingerprint of an error"))
	case len(note) > outbox.MaxNote:
		a.Asked = noted{fingerprint, Kept(note, outbox.MaxNote)}
		return nil, s.Refused(ctx, a, outbox.Invalid("note", "the note is %d bytes long; the limit is %d", len(note), outbox.MaxNote))
	}
	result, err := Perform(ctx, s, a, func(t *Tx, now int64) (*outbox.GroupNote, error) {
		var before *outbox.GroupNote
		err := t.Each(func(row sqldb.Row) (err error) {
			before, err = scanNote(row)
			return err
		}, selectNote, fingerprint)
		if err != nil {
			return nil, err
		}
		if before != nil {
			a.Before = noted{fingerprint, before.Note}
		} else if known, err := t.groupExists(fingerprint); err != nil {
			return nil, err
		} else if !known {
			return nil, outbox.NotFound("no row failed with the fingerprint %q", Kept(fingerprint, outbox.MaxIDLength))
		}
		if note == "" {
			_, err = t.Exec(`delete from group_notes where fingerprint = $1`, fingerprint)
			return nil, err
		}
		_, err = t.Exec(upsertNote, fingerprint, note, o.By.Name, now)
		return &outbox.GroupNote{Note: note, By: o.By.Name, At: sqldb.At(now)}, err
	})
	return result, err
}
