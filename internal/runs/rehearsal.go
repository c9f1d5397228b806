package runs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// rehearsalRow is what a rehearsal was asked, as a row of run_rehearsals.
type rehearsalRow struct {
	fingerprint string
	behind      int64
	blocked     map[string]blockedHead   // by campaign
	more        bool                     // more campaigns are blocked
	versions    map[string]string        // of the changed projections, by name
	otherSchema []string                 // those of them whose tables get another form
	files       []campaign.RehearsalFile // none once they are pruned
}

// blockedHead is the event that blocked a campaign when the rehearsal was started, or at which a changed
// projection was quarantined.
type blockedHead struct {
	Seq         int64  `json:"seq"`
	Fingerprint string `json:"fingerprint"`
	Projection  string `json:"projection,omitempty"` // the quarantined one; empty if the campaign is blocked
}

// projections are those that are tried by themselves: none means all.
func (h blockedHead) projections() []string {
	if h.Projection == "" {
		return nil
	}
	return []string{h.Projection}
}

// checkTime is how long checking changed files may take.
const checkTime = 10 * time.Second

// Rehearse queues a run that applies blocked events, and those at which changed projections are
// quarantined, with changed projection files to copies of the live rows, and compares healthy campaigns:
// those alone if there are no others. Over all campaigns it is a verify. It checks the files as
// loading does. It returns event.ErrInvalid for an invalid request and for files that could not be
// loaded, event.ErrConflict if there is no campaign to try them on.
func (rs *Runs) Rehearse(ctx context.Context, o operator.Command, order replay.RehearsalRequest, loaded *projection.Set) (replay.Run, error) {
	a := &store.Change{Command: o, Action: operator.ActionRehearse}
	if len(order.Campaigns) == 1 {
		a.CampaignID = order.Campaigns[0]
	}
	changed, names, err := rs.checkFiles(ctx, &order, loaded)
	if err != nil {
		return replay.Run{}, rs.core.Refused(ctx, a, err)
	}
	asked := rehearsalRow{fingerprint: order.Fingerprint, behind: order.Behind, files: order.Files, versions: map[string]string{}}
	for _, name := range names {
		asked.versions[name] = changed.Named(name).Version
	}
	asked.otherSchema = asked.changesSchema(changed, loaded)
	if asked.blocked, err = rs.quarantinedHeads(ctx, order, names); err != nil {
		return replay.Run{}, err
	}
	target := map[string]any{"fingerprint": order.Fingerprint, "campaigns_named": len(order.Campaigns), "all_campaigns": order.All, "behind": order.Behind, "versions": asked.versions}
	a.Before, a.Asked = target, target
	return rs.start(ctx, a, func(t *tx, now int64) (replay.Run, error) {
		if order.All {
			return rs.admitRun(t, o, replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: names}, &asked, loaded.Infos(), now)
		}
		return rs.admitRehearsal(t, o, order, asked, loaded, now)
	})
}

// changesSchema lists the projections whose tables have another form in the changed files.
func (r rehearsalRow) changesSchema(changed, loaded *projection.Set) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(r.versions)) {
		if !changed.Named(name).SameSchema(loaded.Named(name)) {
			names = append(names, name)
		}
	}
	return names
}

// checkFiles returns the set with the changed files, and the projections that they change. It also
// creates their tables in a scratch database of the kind of the live one.
func (rs *Runs) checkFiles(ctx context.Context, order *replay.RehearsalRequest, loaded *projection.Set) (*projection.Set, []string, error) {
	if err := order.Check(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	changed, names, err := loaded.Changed(ctx, order.Files)
	if err == nil {
		var f *Replayer
		if f, err = NewReplayer(ctx, rs.core, changed); err == nil {
			err = f.Close()
		}
	}
	if refusal, ok := errors.AsType[*event.Refusal](err); ok && errors.Is(err, event.ErrSetup) {
		err = event.Invalid("files", "%s", refusal.Detail)
	}
	return changed, names, err
}

// admitRehearsal stores a rehearsal, within an action: it freezes the blocked campaigns and chooses
// the healthy ones.
func (rs *Runs) admitRehearsal(t *tx, o operator.Command, order replay.RehearsalRequest, asked rehearsalRow, loaded *projection.Set, now int64) (replay.Run, error) {
	if err := rs.core.Require(o, 0); err != nil {
		return replay.Run{}, err
	}
	blocked, more, err := t.blockedHeads(order)
	if err != nil {
		return replay.Run{}, err
	}
	for _, id := range slices.Sorted(maps.Keys(asked.blocked)) {
		if _, is := blocked[id]; !is && len(blocked) < replay.MaxRehearsed {
			blocked[id] = asked.blocked[id]
		} else if !is {
			more = true
		}
	}
	asked.blocked, asked.more = blocked, more
	if len(asked.blocked) == 0 && order.Fingerprint != "" {
		return replay.Run{}, event.Conflict("no campaign that matches is blocked by a failed or dead event, and in none is a changed projection quarantined; rehearse without naming an error to see what the files would change in healthy ones")
	}
	healthy, err := t.healthySample(asked, order.Campaigns)
	if err != nil {
		return replay.Run{}, err
	}
	if len(asked.blocked)+len(healthy) == 0 {
		return replay.Run{}, event.Conflict("no campaign is blocked by a failed or dead event, in none is a changed projection quarantined, and none has applied events to compare, so there is nothing to rehearse")
	}
	r := &runRow{Run: replay.Run{Kind: replay.RunRehearse}}
	r.cover(slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(asked.blocked)), healthy...))))
	r.queue(o, now)
	if err := r.chooseProjections(nil, loaded.Infos()); err != nil {
		return replay.Run{}, err
	}
	err = t.insertRehearsal(r, asked, now)
	return r.view(now), err
}

// quarantinedHeads reads the campaigns in which a changed projection is quarantined, and the first event
// at which one is.
func (rs *Runs) quarantinedHeads(ctx context.Context, order replay.RehearsalRequest, changed []string) (map[string]blockedHead, error) {
	heads := map[string]blockedHead{}
	for _, name := range changed {
		all, err := rs.core.ReadModel().Quarantined(ctx, name, order.Fingerprint, replay.MaxRehearsed+1, order.Campaigns...)
		if err != nil {
			return nil, err
		}
		for _, q := range all {
			if head, is := heads[q.CampaignID]; !is || q.Seq < head.Seq {
				heads[q.CampaignID] = blockedHead{q.Seq, q.Fingerprint, name}
			}
		}
	}
	return heads, nil
}

const (
	selectBlocked = `
select c.campaign_id, c.head_seq, o.fingerprint
from campaigns c
join projection_apply_outbox o on o.campaign_id = c.campaign_id and o.seq = c.head_seq
where (c.failed > 0 or c.dead > 0 or c.diverged <> '')
  and o.status in ('failed', 'dead')
  and ($1 = '' or o.fingerprint = $1)`

	blockedOfAll = selectBlocked + `
order by c.campaign_id
limit $2`

	blockedOfOne = selectBlocked + `
  and c.campaign_id = $2`
)

// blockedHeads reads the campaigns that a failed or dead event blocks, and whether there are more
// than a rehearsal takes.
func (t *tx) blockedHeads(order replay.RehearsalRequest) (heads map[string]blockedHead, more bool, err error) {
	heads = map[string]blockedHead{}
	collect := func(row sqldb.Row) error {
		var id string
		var head blockedHead
		err := row.Scan(&id, &head.Seq, &head.Fingerprint)
		if _, taken := heads[id]; !taken && len(heads) == replay.MaxRehearsed {
			more = true
			return err
		}
		heads[id] = head
		return err
	}
	var b sqldb.Batch
	if order.Fingerprint == "" && len(order.Campaigns) == 0 { // some of each error first
		fingerprints, err := t.Fingerprints(replay.MaxRehearsed)
		if err != nil {
			return nil, false, err
		}
		for _, one := range fingerprints {
			b.Each(collect, blockedOfAll, one, max(1, replay.MaxRehearsed/len(fingerprints)))
		}
	}
	if len(order.Campaigns) == 0 {
		b.Each(collect, blockedOfAll, order.Fingerprint, replay.MaxRehearsed+1)
	}
	for _, id := range order.Campaigns {
		b.Each(collect, blockedOfOne, order.Fingerprint, id)
	}
	if err := t.RunAll(&b); err != nil {
		return nil, false, fmt.Errorf("read the blocked campaigns: %w", err)
	}
	return heads, more, nil
}

const (
	selectSpan = `select coalesce(min(position), 0), coalesce(max(position), 0) from events`

	selectAt = `
select campaign_id
from events
where position >= $1
order by position
limit 1`

	selectFirst = `
select campaign_id
from campaigns
order by campaign_id
limit $1`

	selectHealthy = `
select campaign_id
from campaigns
where campaign_id = $1
  and applied_seq > 0
  and applied_seq <= $2
  and diverged = ''
  and coalesce(head_status, '') not in ('failed', 'dead')`
)

// probes is how many events are examined for healthy campaigns.
const probes = 8 * replay.RehearsalSample

// healthySample chooses campaigns to compare, at most replay.RehearsalSample, or as many as are named: those, then
// those of the latest events, then those of events all over the journal, where large campaigns are likely, and the
// first ones. The same journal gives the same sample, so that one attempt at a fix is compared with the next.
func (t *tx) healthySample(asked rehearsalRow, named []string) ([]string, error) {
	var first, last int64
	if _, err := t.One([]any{&first, &last}, selectSpan); err != nil {
		return nil, fmt.Errorf("read the span of the journal: %w", err)
	}
	drawn := slices.Clone(named)
	collect := func(row sqldb.Row) error {
		id, err := sqldb.Column[string](row)
		if !slices.Contains(drawn, id) {
			drawn = append(drawn, id)
		}
		return err
	}
	var b sqldb.Batch
	for i := range int64(probes) {
		at := last - i
		if i >= probes/2 {
			at = first + draw(i)%max(1, last-first+1)
		}
		b.Each(collect, selectAt, max(at, first))
	}
	if err := t.RunAll(&b); err != nil {
		return nil, fmt.Errorf("draw healthy campaigns: %w", err)
	}
	// A small journal has all of them, wherever their events are.
	b.Each(collect, selectFirst, probes)
	if err := t.RunAll(&b); err != nil {
		return nil, fmt.Errorf("list campaigns: %w", err)
	}
	var healthy []string
	for _, id := range drawn {
		if _, is := asked.blocked[id]; !is {
			b.Each(sqldb.Collect(&healthy, sqldb.Column[string]), selectHealthy, id, replay.MaxRehearsalReplay)
		}
	}
	if err := t.RunAll(&b); err != nil {
		return nil, fmt.Errorf("choose healthy campaigns: %w", err)
	}
	return healthy[:min(len(healthy), max(len(named), replay.RehearsalSample))], nil
}

// draw returns the i-th number of a fixed sequence.
func draw(i int64) int64 {
	h := fnv.New64a()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(i)))
	return int64(h.Sum64() >> 1)
}

const insertRehearsal = `
insert into run_rehearsals (run_id, fingerprint, behind, blocked, more, versions, other_schema, files)
values ($1, $2, $3, $4, $5, $6, $7, $8)`

// insertRehearsal stores a run that replays with other files than the loaded ones.
func (t *tx) insertRehearsal(run *runRow, r rehearsalRow, now int64) error {
	if err := t.insertRun(run, now); err != nil {
		return err
	}
	run.With = r.versions
	_, err := t.Exec(insertRehearsal, run.ID, r.fingerprint, r.behind, sqldb.JSON(r.blocked), sqldb.Truth(r.more), sqldb.JSON(r.versions),
		sqldb.JSON(orEmpty(r.otherSchema)), sqldb.JSON(r.files))
	return sqldb.Wrapf(err, "store rehearsal %d", run.ID)
}

const selectRehearsal = `
select fingerprint, behind, blocked, more, versions, other_schema, files
from run_rehearsals
where run_id = $1`

// rehearsal reads what a run was asked to rehearse. A run of another kind is event.ErrNotFound.
func (t *tx) rehearsal(id int64) (r rehearsalRow, err error) {
	found, err := t.One([]any{&r.fingerprint, &r.behind, sqldb.ScanJSON(&r.blocked), sqldb.ScanTruth(&r.more), sqldb.ScanJSON(&r.versions),
		sqldb.ScanJSON(&r.otherSchema), sqldb.ScanJSON(&r.files)}, selectRehearsal, id)
	if err != nil {
		return r, fmt.Errorf("read rehearsal %d: %w", id, err)
	}
	if !found {
		return r, event.NotFound("run %d is no rehearsal", id)
	}
	return r, nil
}

// The results without their comparisons.
const rehearsedResults = `
select campaign_id, outcome, seq, events, full_digest, '[]', error, at, rehearsed
from run_results
where run_id = $1
order by campaign_id`

// Rehearsal reads a rehearsal with its answer, so far as there is one. A missing run, or one of
// another kind, is event.ErrNotFound.
func (rs *Runs) Rehearsal(ctx context.Context, id int64, loaded []campaign.ProjectionInfo) (replay.FixRehearsal, error) {
	d, err := rs.answered(ctx, id, loaded)
	if err != nil {
		return d, err
	}
	for i := range d.Versions {
		v := &d.Versions[i]
		known, err := rs.core.Definition(ctx, v.Projection, v.Rehearsed)
		if err != nil {
			return d, err
		}
		if known.Version != "" {
			v.RehearsedLoadedAt = &known.LoadedAt
		}
		quarantined, err := rs.core.ReadModel().Quarantined(ctx, v.Projection, d.Fingerprint, 1)
		if err != nil {
			return d, err
		}
		if len(quarantined) > 0 {
			d.Replayable = append(d.Replayable, v.Projection)
		}
	}
	return d, nil
}

// answered is Rehearsal without when its versions were loaded, and what is quarantined still.
func (rs *Runs) answered(ctx context.Context, id int64, loaded []campaign.ProjectionInfo) (replay.FixRehearsal, error) {
	return reading(ctx, rs, "", func(t *tx) (d replay.FixRehearsal, err error) {
		r, err := t.existingRun(id)
		if err == nil && r.Kind != replay.RunRehearse {
			err = event.NotFound("run %d is no rehearsal", id)
		}
		if err != nil {
			return d, err
		}
		asked, err := t.rehearsal(id)
		if err != nil {
			return d, err
		}
		results, err := sqldb.All(t, scanResult, rehearsedResults, id)
		if err != nil {
			return d, fmt.Errorf("read the results of rehearsal %d: %w", id, err)
		}
		d = replay.FixRehearsal{Run: r.view(rs.core.Now()), Fingerprint: asked.fingerprint, Behind: asked.behind, Blocked: int64(len(asked.blocked)), More: asked.more, Groups: []replay.RehearsalGroup{}}
		for _, head := range asked.blocked {
			if head.Projection != "" {
				d.Quarantined++
			}
		}
		d.Versions, d.Others = asked.compareVersions(r.Versions, loaded)
		d.Loaded = len(d.Others) == 0 && !slices.ContainsFunc(d.Versions, replay.RehearsalVersion.Differs)
		for _, one := range results {
			d.Add(one, event.Fingerprint)
		}
		d.Describe()
		return d, nil
	})
}

// compareVersions compares the versions that a rehearsal ran with, those of its changed files instead
// of what was loaded then, with the loaded ones. others are the projections that it did not change and
// that are not loaded as they were.
func (r rehearsalRow) compareVersions(then map[string]string, loaded []campaign.ProjectionInfo) (changed, others []replay.RehearsalVersion) {
	now := versionsOf(loaded)
	names := maps.Clone(now)
	maps.Copy(names, then)
	changed, others = []replay.RehearsalVersion{}, []replay.RehearsalVersion{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v := replay.RehearsalVersion{Projection: name, Before: then[name], Loaded: now[name], Rehearsed: then[name]}
		if version, is := r.versions[name]; is {
			v.Rehearsed, v.OtherSchema = version, slices.Contains(r.otherSchema, name)
			changed = append(changed, v)
		} else if v.Differs() {
			others = append(others, v)
		}
	}
	return changed, others
}

// RehearsedFiles returns the changed files of a rehearsal; none once it is old. A missing run, or one
// of another kind, is event.ErrNotFound.
func (rs *Runs) RehearsedFiles(ctx context.Context, id int64) ([]campaign.RehearsalFile, error) {
	return reading(ctx, rs, "", func(t *tx) ([]campaign.RehearsalFile, error) {
		asked, err := t.rehearsal(id)
		return asked.files, err
	})
}

const pruneFiles = `
update run_rehearsals
set files = ''
where run_id < $1
  and files <> ''
  and run_id in (select id from runs where kind = $2)`

// pruneFiles deletes the files of all but the latest ended runs of a kind.
func (rs *Runs) pruneFiles(ctx context.Context, kind replay.RunKind) error {
	oldest, err := reading(ctx, rs, "", func(t *tx) (int64, error) { return t.oldestKept(kind) })
	if err != nil || oldest == 0 {
		return err
	}
	return rs.write(ctx, func(t *tx) error {
		_, err := t.Exec(pruneFiles, oldest, string(kind))
		return err
	})
}
