// Package timetravel shows the read models of a campaign as of any of its events. It replays the
// campaign once into scratch tables, keeps every version of every row in a temporary file, and
// answers from there: the rows after an event, what the event changed, and which event and statement
// set a cell.
package timetravel

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Config configures a Travel. Store and Set are required.
type Config struct {
	Store *store.Store
	Set   *projection.Set
	// Campaigns is how many campaigns' changes are kept at a time; 0 means 4. On PostgreSQL each has
	// a connection to the projections database.
	Campaigns int
	// Events is how many events of a campaign rows are kept for, the last ones; 0 means 100,000.
	Events int64
	// Bytes is the size of the files together; 0 means 512 MiB. One campaign may take half of it.
	Bytes int64
	// Idle is after how long without readers a campaign's changes are dropped; 0 means 10 minutes.
	Idle time.Duration
}

// Travel keeps the row changes of the campaigns that were read last. It is safe for concurrent use.
type Travel struct {
	Config
	mu      sync.Mutex
	kept    map[string]*history
	closed  bool
	opened  int // replays begun
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup
	sweeps  *time.Timer
}

// New makes a Travel that keeps nothing yet. The caller must Close it.
func New(c Config) *Travel {
	c.Campaigns, c.Events = cmp.Or(c.Campaigns, 4), cmp.Or(c.Events, 100_000)
	c.Bytes, c.Idle = cmp.Or(c.Bytes, 512<<20), cmp.Or(c.Idle, 10*time.Minute)
	t := &Travel{Config: c, kept: map[string]*history{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.sweeps = time.AfterFunc(c.Idle, t.sweep)
	return t
}

// Close ends replays and drops everything.
func (t *Travel) Close() {
	t.cancel()
	t.mu.Lock()
	t.closed = true
	t.sweeps.Stop()
	for _, h := range t.kept {
		t.drop(h)
	}
	t.mu.Unlock()
	t.working.Wait()
}

// sweep drops the campaigns that nobody has read for long.
func (t *Travel) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.kept {
		if time.Since(h.read) > t.Idle && h.users == 0 {
			t.drop(h)
		}
	}
	if !t.closed {
		t.sweeps.Reset(t.Idle)
	}
}

// drop forgets a campaign; what it has open is closed once nobody uses it. The caller holds mu.
func (t *Travel) drop(h *history) {
	if t.kept[h.campaign] == h {
		delete(t.kept, h.campaign)
	}
	h.dropped = true
	if h.users == 0 && !h.replaying {
		h.close()
	}
}

// acquire returns the history of a campaign, which release gives back. It makes room for a new one.
func (t *Travel) acquire(campaign string) (*history, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, &event.Refusal{Err: event.ErrBusy, Detail: "the server is stopping"}
	}
	h := t.kept[campaign]
	if h == nil {
		if t.makeRoom(nil, 1); len(t.kept) >= t.Campaigns {
			return nil, &event.Refusal{Err: event.ErrBusy, Detail: fmt.Sprintf("the rows of %s are being read as of earlier events, the limit of this server; try again in a moment", event.Count(int64(t.Campaigns), "campaign", "campaigns"))}
		}
		h = &history{travel: t, campaign: campaign, lineage: t.Store.Lineage(), told: make(chan struct{})}
		t.kept[campaign] = h
	}
	h.users++
	h.read = time.Now()
	return h, nil
}

// makeRoom drops the campaigns read least recently until the others fit, and some more. The caller
// holds mu.
func (t *Travel) makeRoom(but *history, more int) {
	for {
		var size int64
		var oldest *history
		for _, h := range t.kept {
			size += h.size()
			if h != but && h.users == 0 && (oldest == nil || h.read.Before(oldest.read)) {
				oldest = h
			}
		}
		if oldest == nil || len(t.kept)+more <= t.Campaigns && size <= t.Bytes {
			return
		}
		t.drop(oldest)
	}
}

// release gives a history back; one that is stale is dropped.
func (t *Travel) release(h *history, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.users--
	if errors.Is(err, errStale) {
		t.drop(h)
	}
	h.read = time.Now()
	if h.dropped && h.users == 0 && !h.replaying {
		h.close()
	}
	t.makeRoom(h, 0)
}

// with runs fn on the log of a campaign as of seq; a seq of 0 means the last applied one, which fn gets
// too. When wait has passed it is an Replaying.
func (t *Travel) with(ctx context.Context, wait time.Duration, campaign string, seq int64, fn func(h *history, r *reading, last int64) error) error {
	c, err := t.Store.Campaign(ctx, campaign)
	if err != nil {
		return err
	}
	applied := min(c.AppliedSeq, c.HighWaterSeq)
	switch {
	case seq > applied:
		return event.NotFound("event %d of campaign %q is not applied; the last applied event is %d", seq, campaign, applied)
	case seq < 0:
		return event.Invalid("seq", "seq must be 0 or more")
	case seq == 0:
		seq = applied
	}
	until, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		h, err := t.acquire(campaign)
		if err != nil {
			return err
		}
		l, err := h.reach(ctx, until, seq, applied)
		if err == nil {
			err = l.read(ctx, h.statements, seq, func(r *reading) error { return fn(h, r, applied) })
		}
		t.release(h, err)
		if !errors.Is(err, errStale) {
			return err
		}
	}
}

// At reads the rows of a campaign as of an event. It waits for their replay until wait has passed,
// and then returns an *Replaying.
func (t *Travel) At(ctx context.Context, q ModelQuery, wait time.Duration) (m ReadModel, err error) {
	limit := MaxModelRows
	if q.Limit > 0 {
		limit = min(q.Limit, limit)
	}
	var built map[string]campaign.ReplayedWith
	err = t.with(ctx, wait, q.CampaignID, q.Seq, func(h *history, r *reading, last int64) error {
		built = h.replayedWith()
		m = ReadModel{CampaignID: q.CampaignID, Seq: r.seq, Tables: []ModelTable{}, Changes: []ModelTable{}, Graphs: []ModelGraph{}, Standings: h.standings()}
		m.FirstSeq, m.LastSeq = r.base, last
		return r.page(&m, q, limit, t.Set.Graphs())
	})
	if err == nil {
		err = t.replaceUnreplayed(ctx, &m, limit, q.Row == "" && m.Seq == m.LastSeq)
	}
	nameVersions(built, m.Tables, m.Changes)
	return m, err
}

// nameVersions sets with which version each table was replayed, and which ones built its live rows.
func nameVersions(built map[string]campaign.ReplayedWith, all ...[]ModelTable) {
	for _, tables := range all {
		for i := range tables {
			table := &tables[i]
			table.ReplayedWith = built[table.Projection]
			if table.Source != SourceReplay {
				table.Version, table.AsBuilt = "", false
			}
		}
	}
}

// replaceUnreplayed replaces the rows of projections that could not be replayed up to the event, which
// are those of an earlier one: by the live rows if those are of this event, and otherwise by none.
func (t *Travel) replaceUnreplayed(ctx context.Context, m *ReadModel, limit int, mayBeLive bool) error {
	var live ReadModel
	for i := range m.Tables {
		table := &m.Tables[i]
		if _, failed := m.FailedBy(table.Projection); !failed {
			continue
		}
		table.Source, table.Rows, table.Next, table.More = SourceUnknown, []ModelRow{}, "", false
		if live.Tables == nil && mayBeLive {
			var err error
			if live, err = t.Live(ctx, m.CampaignID); err != nil {
				return err
			}
			mayBeLive = live.Seq == m.Seq
		}
		if at := slices.IndexFunc(live.Tables, func(l ModelTable) bool { return l.Name == table.Name }); at >= 0 && mayBeLive {
			*table = live.Tables[at]
			if len(table.Rows) > limit {
				table.Rows, table.More = table.Rows[:limit], true
			}
		}
	}
	m.Graphs = slices.DeleteFunc(m.Graphs, func(g ModelGraph) bool {
		_, failed := m.FailedBy(g.Projection)
		return failed
	})
	return nil
}

// page reads the tables that a query selects.
func (r *reading) page(m *ReadModel, q ModelQuery, limit int, graphs []projection.Graph) error {
	if q.Row != "" {
		return r.oneRow(m, q.Row)
	}
	for i, shape := range r.log.tables {
		if q.Table != "" && q.Table != shape.Table {
			continue
		}
		after := []byte{}
		if q.Table != "" {
			var err error
			if after, err = r.sortOf(i, q.After); err != nil {
				return err
			}
		}
		t, err := r.table(i, after, limit)
		if err != nil {
			return err
		}
		m.Tables = append(m.Tables, t)
	}
	switch {
	case q.Table == "":
		for _, g := range graphs {
			graph, err := r.graph(g)
			if err != nil {
				return err
			}
			m.Graphs = append(m.Graphs, graph)
		}
		var err error
		m.Changes, err = r.changes(limit)
		return err
	case len(m.Tables) == 0:
		return event.NotFound("no loaded projection has a table %q", q.Table)
	}
	return nil
}

// oneRow reads one row; before it was there, and after it was removed, there is none.
func (r *reading) oneRow(m *ReadModel, name string) error {
	var tab int
	if err := r.tx.QueryRowContext(r.ctx, `select tab from row_keys where name = $1`, name).Scan(&tab); err != nil {
		return event.NotFound("this campaign has no such row")
	}
	t := emptyTable(r.log.tables[tab], SourceReplay)
	s, err := r.version(name, r.seq)
	if err == nil && (s.cells != nil || s.seq == r.seq) {
		err = r.fill(&t, []stored{s})
	}
	if errors.Is(err, event.ErrNotFound) {
		err = nil
	}
	m.Tables = append(m.Tables, t)
	return err
}

// Changes reads the rows that one event changed, at most MaxModelRows, and the tables of which that is
// not known. It waits as At does.
func (t *Travel) Changes(ctx context.Context, campaign string, seq int64, wait time.Duration) (tables []ModelTable, err error) {
	err = t.with(ctx, wait, campaign, seq, func(h *history, r *reading, _ int64) (err error) {
		defer func() { nameVersions(h.replayedWith(), tables) }()
		tables, err = r.changes(MaxModelRows)
		m := ReadModel{Seq: r.seq, Standings: h.standings()}
		for _, shape := range r.log.tables {
			if _, failed := m.FailedBy(shape.Projection); failed {
				tables = append(tables, emptyTable(shape, SourceUnknown))
			}
		}
		return err
	})
	return tables, err
}

// Cell reads one cell as of an event, with the values it had before. It waits as At does.
func (t *Travel) Cell(ctx context.Context, q ModelQuery, column string, wait time.Duration) (cell ModelHistory, err error) {
	err = t.with(ctx, wait, q.CampaignID, q.Seq, func(h *history, r *reading, last int64) (err error) {
		cell, err = r.history(q.Row, column)
		cell.CampaignID, cell.FirstSeq, cell.LastSeq = q.CampaignID, r.base, last
		cell.ReplayedWith = h.replayedWith()[cell.Projection]
		return err
	})
	if err == nil && cell.Cell.SetSeq > 0 {
		err = t.nameSetter(ctx, &cell)
	}
	return cell, err
}

// nameSetter sets whose event set a cell.
func (t *Travel) nameSetter(ctx context.Context, cell *ModelHistory) error {
	e, err := t.Store.Event(ctx, cell.CampaignID, cell.Cell.SetSeq)
	if err != nil {
		return err
	}
	cell.EventType = e.EventType
	cell.SetBy = &ModelSetter{ActorType: e.ActorType, ActorID: e.ActorID, RequestID: e.RequestID, RecordedAt: e.RecordedAt}
	if cell.AsBuilt {
		cell.SetBy.Version = cell.Built.At(cell.Cell.SetSeq).LoadedVersion
	}
	return nil
}

// Live reads the first rows of each table as the projections database has them now, without their
// history.
func (t *Travel) Live(ctx context.Context, campaignID string) (ReadModel, error) {
	m := ReadModel{CampaignID: campaignID, Live: true, Tables: []ModelTable{}, Changes: []ModelTable{}, Graphs: []ModelGraph{}, Standings: []ModelStanding{}}
	live, err := t.Store.ReadModel().Live(ctx)
	if err != nil {
		return m, err
	}
	defer live.Close()
	mark, _, err := live.Watermark(ctx, campaignID)
	if err != nil {
		return m, err
	}
	m.Seq, m.LastSeq = mark.AppliedSeq, mark.AppliedSeq
	all, err := t.Set.FirstRows(ctx, live, campaignID, MaxModelRows)
	for _, rows := range all {
		m.Tables = append(m.Tables, liveTable(rows))
	}
	if err == nil {
		var built map[string]campaign.ReplayedWith
		built, err = runs.Built(ctx, t.Store, t.Set, campaignID)
		nameVersions(built, m.Tables)
	}
	return m, err
}

func liveTable(rows projection.TableRows) ModelTable {
	t := emptyTable(rows.Shape, SourceLive)
	t.More = rows.More
	for _, cells := range rows.Rows {
		row := ModelRow{Key: keyFields(rows.Shape, rows.KeyOf(cells)), Cells: []ModelCell{}}
		for i, name := range rows.Columns {
			if isCell(rows.Shape, name) {
				row.Cells = append(row.Cells, ModelCell{Name: name, Value: cells[i]})
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// namedWithin is the number of applied events up to which a campaign is replayed to name the event
// behind a row that an explanation shows: pages read explanations again and again.
const namedWithin = 5000

// NameEvents adds to the live rows of an explanation which event changed them last. It leaves that
// out where the campaign is long, the replay is not done when wait has passed, or the loaded version
// makes another row of the journal or did not build all rows.
func (t *Travel) NameEvents(ctx context.Context, x *projection.EventExplanation, wait time.Duration) {
	for _, f := range x.Failures {
		if f.Existing == nil {
			continue
		}
		c, err := t.Store.Campaign(ctx, x.CampaignID)
		name := t.RowName(x.CampaignID, f.Existing.Table, f.Existing.Fields)
		if err != nil || c.AppliedSeq > namedWithin || name == "" {
			continue
		}
		_ = t.with(ctx, wait, x.CampaignID, 0, func(h *history, r *reading, _ int64) error {
			if h.replayedWith()[f.Projection].Doubt() != "" {
				return nil
			}
			s, err := r.version(name, r.seq)
			if err == nil && s.seq > r.base && s.agrees(r.log.tables[s.tab], f.Existing.Fields) {
				f.Existing.SetBy = s.seq
			}
			return err
		})
	}
}

// agrees reports whether a row has the values of a live one, as far as those are not hidden.
func (s stored) agrees(shape projection.Shape, live []projection.Field) bool {
	if s.cells == nil {
		return false
	}
	for _, f := range live {
		if bytes.Equal(f.Value, event.HiddenJSON) {
			continue
		}
		i := slices.Index(shape.Columns, f.Name)
		if i < 0 || !s.cells[i].holds(f.Value) && !s.cells[i].cut(f.Value) {
			return false
		}
	}
	return true
}

// RowName names the row of a table with a key, which lacks the campaign; empty for a row that cannot
// be named by its key.
func (t *Travel) RowName(campaign, table string, key []projection.Field) string {
	shapes := t.Set.Shapes()
	i := slices.IndexFunc(shapes, func(s projection.Shape) bool { return s.Table == table })
	if i < 0 || shapes[i].Keyless {
		return ""
	}
	id, err := json.Marshal(campaign)
	if err != nil {
		return ""
	}
	var whole []json.RawMessage
	for _, name := range shapes[i].Key {
		j := slices.IndexFunc(key, func(f projection.Field) bool { return f.Name == name })
		switch {
		case name == "campaign_id":
			whole = append(whole, id)
		case j < 0:
			return ""
		default:
			whole = append(whole, key[j].Value)
		}
	}
	return rowName(table, sortKey(whole))
}
