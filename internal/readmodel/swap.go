package readmodel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Swap is the plan for one campaign: the rows of some projections are replaced by those of a
// Scratch.
type Swap struct {
	CampaignID  string
	Epoch       int64  // epoch of the run's claim
	AppliedSeq  int64  // the watermark as planned
	AppliedHash string // likewise
	Projections []SwapProjection
	Watermark   *NewWatermark // nil where it stays; it changes only when it contradicts the journal
}

// SwapProjection is one projection of a Swap.
type SwapProjection struct {
	Name   string
	Tables []string // in order of creation
	// Seq is the projection's applied seq afterwards. A live one is at the watermark.
	Seq int64
	// Version replayed the events after After up to Seq; those before are in the rows as they were.
	Version string
	After   int64
	State   string    // one of the campaign.Cursor… states
	Expect  *Position // its position as planned; nil where any is accepted
	// Failure is the failure at event Seq+1 that stopped the projection there; nil when none did.
	Failure *SwapFailure
}

// SwapFailure is the reason why a projection does not continue.
type SwapFailure struct {
	Failure
	EventType string
	Attempts  int
}

// NewWatermark is the watermark of a campaign after all its projections were rebuilt.
type NewWatermark struct {
	Seq    int64
	Hash   string          // chain hash of that event; empty at 0
	Passed map[int64]int64 // ids of the active skips, by the seq of the skipped event
}

// Swapped is the result for one campaign.
type Swapped struct {
	CampaignID string
	Rows       map[string]*campaign.RowsReplaced // by projection; nil with an error
	// Err is the reason why nothing of this campaign has changed; nil when it was swapped. It is
	// event.ErrLeaseLost when the run was fenced off, and event.ErrConflict when the state is not
	// as planned.
	Err error
}

// Swap replaces live rows of campaigns by those of the Scratch, in one transaction. Each
// campaign is swapped completely or not at all, and readers see the old rows or the new ones.
// Triggers on the live tables do not fire. The projections' cursors get their new position and
// the next generation, and their failures up to there are resolved.
//
// When Swap returns an error nothing has changed; event.ErrBusy may succeed later, on
// PostgreSQL with another Scratch.
func (c *Scratch) Swap(ctx context.Context, plan []Swap) ([]Swapped, error) {
	s := c.model
	if err := s.options.Refuse(); err != nil {
		return nil, err
	}
	w := &swapping{scratch: c, a: s.newApplyTx()}
	run := func(t *sqldb.Tx) error {
		t.ForUpdate = t.Dialect().ForUpdate
		w.a.t = t
		return w.all(ctx, plan)
	}
	var err error
	if s.Dialect.TempTables {
		err = c.within(sqldb.BeginSwap, run)
	} else {
		err = s.WriteFrom(ctx, sqldb.BeginApply, run)
	}
	if err != nil {
		return nil, fmt.Errorf("swap rows in: %w", err)
	}
	s.onAdvance(w.a.reached)
	return w.results, nil
}

// tablesOf lists the tables of a plan, each once, in order of creation.
func tablesOf(plan []Swap) (tables []string) {
	for _, p := range plan {
		for _, projection := range p.Projections {
			for _, table := range projection.Tables {
				if !slices.Contains(tables, table) {
					tables = append(tables, table)
				}
			}
		}
	}
	return tables
}

// swapping is a transaction that swaps in rows.
type swapping struct {
	scratch *Scratch
	a       *ApplyTx
	results []Swapped
}

func (w *swapping) all(ctx context.Context, plan []Swap) error {
	ids := make([]string, len(plan))
	for i, p := range plan {
		ids[i] = p.CampaignID
	}
	tables := tablesOf(plan)
	return quietly(ctx, w.a.t, w.a.t.Schema(), tables, func() error {
		for _, table := range tables {
			columns, err := w.scratch.columnsOf(table)
			if err == nil {
				err = fits(w.a.t, w.a.t.Each, table, columns)
			}
			if err != nil {
				return err
			}
		}
		if err := w.a.ReadAhead(ids); err != nil {
			return err
		}
		for i := range plan {
			if err := ctx.Err(); err != nil {
				return err
			}
			result, err := w.one(ctx, &plan[i])
			if err != nil {
				return err
			}
			w.results = append(w.results, result)
		}
		return nil
	})
}

// one swaps the rows of one campaign. After an error the whole transaction is lost.
func (w *swapping) one(ctx context.Context, p *Swap) (Swapped, error) {
	result := Swapped{CampaignID: p.CampaignID}
	if result.Err = w.asPlanned(p); result.Err != nil {
		return result, w.a.t.Err()
	}
	if err := w.a.Savepoint(); err != nil {
		return result, err
	}
	err := w.replace(ctx, p, &result)
	if err == nil {
		err = w.settle(p)
	}
	if w.a.Lost() || ctx.Err() != nil {
		return result, err
	}
	if err != nil {
		result = Swapped{CampaignID: p.CampaignID, Err: err}
		if err := w.a.RollbackTo(); err != nil {
			return result, err
		}
	} else if p.Watermark != nil {
		w.a.reached[p.CampaignID] = p.Watermark.Seq
	}
	return result, w.a.Release()
}

// asPlanned refuses a campaign that another owner has claimed or whose state is not as planned.
func (w *swapping) asPlanned(p *Swap) error {
	mark, err := w.a.Watermark(p.CampaignID)
	if err != nil {
		return err
	}
	if mark.FenceEpoch != p.Epoch {
		return event.ErrLeaseLost
	}
	if mark.AppliedSeq != p.AppliedSeq || mark.AppliedHash != p.AppliedHash {
		return event.Conflict("the projections of campaign %q are at event %d now, not at event %d as before", p.CampaignID, mark.AppliedSeq, p.AppliedSeq)
	}
	stands := make(map[string]Position)
	if err := w.a.t.Each(collectStands(stands), selectStands+w.a.t.ForUpdate, p.CampaignID); err != nil {
		return err
	}
	for _, projection := range p.Projections {
		if err := projection.stoodAt(stands, p); err != nil {
			return err
		}
		if now := stands[projection.Name]; slices.Contains(w.a.paused, projection.Name) && now.State != "" && now.State != campaign.CursorLive && projection.Seq > now.AppliedSeq {
			refusal := event.Conflict("projection %q is paused for all campaigns; resume it for all of them first", projection.Name)
			refusal.Err = fmt.Errorf("%w: %w", event.ErrConflict, ErrPausedForAll)
			return refusal
		}
	}
	return nil
}

// ErrPausedForAll marks the refusal to move a projection that is paused for all campaigns.
var ErrPausedForAll = errors.New("paused for all campaigns")

// stoodAt refuses a projection that is not at the planned position, or that would be live
// without being at the watermark.
func (p *SwapProjection) stoodAt(stands map[string]Position, plan *Swap) error {
	level := plan.AppliedSeq
	if plan.Watermark != nil {
		level = plan.Watermark.Seq
	}
	if p.State == campaign.CursorLive && p.Seq != level {
		return event.Conflict("projection %q of campaign %q was replayed up to event %d and cannot go live at event %d", p.Name, plan.CampaignID, p.Seq, level)
	}
	if p.Expect == nil {
		return nil
	}
	now, known := stands[p.Name]
	if !known {
		now = Position{Generation: 1, State: campaign.CursorLive}
	}
	want := *p.Expect
	if now.State == campaign.CursorLive && want.State == campaign.CursorLive {
		now.AppliedSeq, want.AppliedSeq = 0, 0
	}
	if now != want {
		return event.Conflict("projection %q of campaign %q is %s at event %d in generation %d now, not %s at event %d in generation %d as it was",
			p.Name, plan.CampaignID, now.State, now.AppliedSeq, now.Generation, want.State, want.AppliedSeq, want.Generation)
	}
	return nil
}

// replace deletes the live rows, referring rows first, and copies the scratch rows.
func (w *swapping) replace(ctx context.Context, p *Swap, result *Swapped) error {
	t, tables, rows := w.a.t, tablesOf([]Swap{*p}), make(map[string]*campaign.RowsReplaced)
	result.Rows = make(map[string]*campaign.RowsReplaced)
	for _, projection := range p.Projections {
		result.Rows[projection.Name] = new(campaign.RowsReplaced)
		for _, table := range projection.Tables {
			rows[table] = result.Rows[projection.Name]
		}
	}
	for _, table := range slices.Backward(tables) {
		n, err := t.Exec("delete from "+qualified(t.Schema(), table)+" where campaign_id = $1", p.CampaignID)
		if err != nil {
			return fmt.Errorf("delete the rows of table %q: %w", table, err)
		}
		rows[table].Before += n
	}
	for _, table := range tables {
		var n int64
		var err error
		if t.Dialect().TempTables {
			n, err = w.scratch.transfer(t, sqldb.Temporary, t.Schema(), table, p.CampaignID)
		} else {
			n, err = stream(ctx, t, w.scratch.Each, table, w.scratch.columns[table], p.CampaignID, "")
		}
		if err != nil {
			return fmt.Errorf("copy the rows of table %q: %w", table, err)
		}
		rows[table].After += n
	}
	return nil
}

const (
	// A projection without a cursor has generation 1.
	upsertCursor = `
insert into projection_cursors (campaign_id, projection, applied_seq, generation, state, updated_at, applied_at, built)
values ($1, $2, $3, 2, $4, $5, $5, $6)
on conflict (campaign_id, projection) do update
set applied_seq = excluded.applied_seq, generation = projection_cursors.generation + 1, state = excluded.state, updated_at = excluded.updated_at,
  built = case when cast($7 as bigint) = 0 or length(projection_cursors.built) > 4000 then excluded.built else projection_cursors.built || ' ' || excluded.built end,
  applied_at = case when projection_cursors.state <> 'live' and projection_cursors.applied_seq = excluded.applied_seq then projection_cursors.applied_at else excluded.applied_at end,
  paused_by = case when excluded.state in ('paused', 'behind') then projection_cursors.paused_by else '' end,
  paused_at = case when excluded.state in ('paused', 'behind') then projection_cursors.paused_at else null end,
  reason = case when excluded.state in ('paused', 'behind') then projection_cursors.reason else '' end`

	resolveFailuresUpTo = `
update failures
set status = 'resolved', resolved_at = $4
where campaign_id = $1
  and projection = $2
  and seq <= $3
  and status = 'open'`

	reopenFailure = `
insert into failures (campaign_id, projection, seq, event_type, fingerprint, message, attempts, first_at, last_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $8)
on conflict (campaign_id, projection, seq) where status = 'open' do update
set fingerprint = excluded.fingerprint, message = excluded.message, attempts = failures.attempts + excluded.attempts, last_at = excluded.last_at`

	resolveFailuresRecount = `
update projection_watermarks
set set_aside = (select count(*) from projection_cursors where campaign_id = $1 and state || '' <> 'live'),
  open_failures = (select count(*) from failures where campaign_id = $1 and status = 'open')
where campaign_id = $1`

	placeWatermark = `
update projection_watermarks
set applied_seq = $2, applied_hash = $3, updated_at = $4
where campaign_id = $1`
)

// settle writes the new cursors and the watermark.
func (w *swapping) settle(p *Swap) error {
	var b sqldb.Batch
	now := w.a.now
	for _, projection := range p.Projections {
		b.Exec(nil, upsertCursor, p.CampaignID, projection.Name, projection.Seq, projection.State, now,
			campaign.ReplayedText(projection.After, projection.Seq, projection.Version), projection.After)
		b.Exec(nil, resolveFailuresUpTo, p.CampaignID, projection.Name, projection.Seq, now)
		if f := projection.Failure; f != nil {
			b.Exec(nil, reopenFailure, p.CampaignID, projection.Name, projection.Seq+1, f.EventType, f.Fingerprint, sqldb.Clip(f.Message, ErrorLimit), f.Attempts, now)
		}
	}
	if m := p.Watermark; m != nil {
		b.Exec(nil, placeWatermark, p.CampaignID, m.Seq, m.Hash, now)
		b.Exec(nil, `delete from watermark_skips where campaign_id = $1`, p.CampaignID)
		for _, seq := range slices.Sorted(maps.Keys(m.Passed)) {
			b.Exec(nil, insertMark, p.CampaignID, seq, m.Passed[seq], now)
		}
	}
	b.Exec(nil, resolveFailuresRecount, p.CampaignID)
	if err := w.a.t.RunAll(&b); err != nil {
		return fmt.Errorf("write where campaign %q stands: %w", p.CampaignID, err)
	}
	return nil
}

// MarkBuilt records that a projection's rows were built by a version of its definition in every
// campaign.
func (d *Database) MarkBuilt(ctx context.Context, projection, version string) error {
	err := d.Write(ctx, func(t *sqldb.Tx) error {
		_, err := t.Exec(`
update projection_versions
set built_version = $2
where projection = $1`, projection, version)
		return err
	})
	if err != nil {
		return fmt.Errorf("note what projection %q was built by: %w", projection, err)
	}
	return nil
}
