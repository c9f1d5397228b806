package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Replayer replays events of the journal into scratch tables, without touching the live ones. It
// must be used by one goroutine only.
type Replayer struct {
	store   *store.Store
	set     *projection.Set
	scratch *readmodel.Scratch
	chunk   int64 // events to read at a time
	// stretches, in order of seq, are the events that other sets apply.
	stretches []stretch
	without   int64 // the event that is replayed as if it were skipped; 0 for none

	// foreign means that the live tables may be those of another version of the set, with other
	// columns.
	foreign bool
	// hurry means that others wait for the replay, so it does not yield.
	hurry bool

	// pace, which may be nil, is called after every chunk of a replay with the chunk's events and
	// the working time since its last call, including comparing and swapping; it returns when the
	// next chunk may begin.
	pace  func(ctx context.Context, d *Expected, events int64, worked time.Duration) error
	paced time.Time // when pace last returned

	// say is told what is being done with a campaign.
	say func(campaign, doing string)

	marks *marks     // of a Recording; nil otherwise
	again *Recording // for firstDivergence; nil before the first
}

// NewReplayer creates empty scratch tables of the set's projections. The caller must Close it.
// Errors are those of Store.OpenScratch; a schema that does not fit the database is an
// event.ErrSetup refusal that names file and line.
func NewReplayer(ctx context.Context, s *store.Store, set *projection.Set) (*Replayer, error) {
	scratch, err := s.ReadModel().OpenScratch(ctx, definitions(set))
	if err != nil {
		return nil, refuseSchema(set, err)
	}
	scratch.OneByOne = set.HasCode()
	return &Replayer{store: s, set: set, scratch: scratch, chunk: firstChunk, paced: time.Now(), say: func(string, string) {}}, nil
}

// Close drops the scratch tables.
func (f *Replayer) Close() error {
	if f.again != nil {
		return errors.Join(f.again.Close(), f.scratch.Close())
	}
	return f.scratch.Close()
}

// OtherVersion declares that the live tables may have been made by another version of the set, and
// lack columns or be missing. Their digests are left out.
func (f *Replayer) OtherVersion() { f.foreign = true }

// The number of events per read depends on their size, so that a chunk takes about chunkBytes.
const (
	firstChunk = 64
	mostChunk  = 512
	chunkBytes = 8 << 20
)

// Expected is the replayed state of one campaign, starting from nothing or from the live rows.
type Expected struct {
	replayer *Replayer
	campaign string
	names    []string         // the replayed projections and those they need
	began    map[string]int64 // seqs after which projections get no event, as given to Begin
	stops    map[string]int64 // the entries of began not reached yet

	Seq    int64  // replayed up to here
	Hash   string // chain hash of that event; empty at 0
	Events int64  // number of events read
	// Failed holds the projections that refused an event; they get no events from it on.
	Failed map[string]ReplayFailure
	// Skips are the ids of the skips passed over, by seq.
	Skips map[int64]int64

	left map[string]bool // projections that get no more events
}

// ReplayFailure is the event that a projection refused.
type ReplayFailure struct {
	Seq        int64
	EventType  string
	Projection string // empty if the event itself is unsound
	Err        error
}

// Begin starts the replay of a campaign with some projections; none means all. It empties the
// scratch tables. stops, which may be nil, are seqs after which a projection gets no more events.
func (f *Replayer) Begin(ctx context.Context, campaign string, stops map[string]int64, projections ...string) (*Expected, error) {
	names, err := f.set.Needs(projections...)
	if err != nil {
		return nil, err
	}
	f.say(campaign, "replaying its events")
	if err := f.scratch.Clear(ctx, campaign, f.tables(names)...); err != nil {
		return nil, err
	}
	return &Expected{replayer: f, campaign: campaign, names: names, began: stops, stops: maps.Clone(stops), left: f.set.Others(names),
		Failed: map[string]ReplayFailure{}, Skips: map[int64]int64{}}, nil
}

// inconsistentError is an event that is not the one that was appended.
type inconsistentError struct {
	campaign string
	seq      int64
	reason   string
}

func (e *inconsistentError) Error() string {
	return fmt.Sprintf("campaign %q: %s", e.campaign, e.reason)
}

// asInconsistent returns err as an inconsistentError, or nil.
func asInconsistent(err error) *inconsistentError {
	unsound, _ := errors.AsType[*inconsistentError](err)
	return unsound
}

// To replays up to the event at seq until. A projection that refuses an event is recorded in Failed
// and left out from there on; any other error ends the replay. It returns early when ctx ends.
func (d *Expected) To(ctx context.Context, until int64) error {
	for d.Seq < until {
		if err := ctx.Err(); err != nil {
			return err
		}
		events, auditOnly, err := d.load(ctx, d.nextStop(until))
		if err != nil {
			return err
		}
		if err := d.apply(ctx, events, auditOnly); err != nil {
			return err
		}
		if err := d.replayer.throttle(ctx, d, int64(len(events))); err != nil {
			return err
		}
	}
	return nil
}

// throttle calls pace after so many events.
func (f *Replayer) throttle(ctx context.Context, d *Expected, events int64) error {
	if f.pace == nil {
		return nil
	}
	err := f.pace(ctx, d, events, time.Since(f.paced))
	f.paced = time.Now()
	return err
}

// nextStop returns how far the next chunk may go: up to until, but not past the seq at which a
// projection stops.
func (d *Expected) nextStop(until int64) int64 {
	last := min(until, d.Seq+d.replayer.chunk)
	for name, stop := range d.stops {
		if stop <= d.Seq {
			d.drop(name)
			delete(d.stops, name)
		} else {
			last = min(last, stop)
		}
	}
	return last
}

// drop removes a projection from the replay.
func (d *Expected) drop(name string) {
	d.left = maps.Clone(d.left)
	d.left[name] = true
}

// load reads the next events, up to last, and verifies that they are those that were appended.
func (d *Expected) load(ctx context.Context, last int64) ([]event.Event, map[string]bool, error) {
	loaded, auditOnly, err := d.replayer.store.Load(ctx, []store.Range{{CampaignID: d.campaign, First: d.Seq + 1, Last: last}}, chunkBytes)
	if err != nil {
		return nil, nil, err
	}
	events := loaded[0].Events
	d.replayer.adapt(events)
	for i := range events {
		if events[i].Seq == d.replayer.without {
			events[i].Skipped = &event.Skip{}
		}
		if events[i].Seq != d.Seq+1+int64(i) {
			events = events[:i]
			break
		}
	}
	if len(events) == 0 {
		return nil, nil, &inconsistentError{d.campaign, d.Seq + 1, fmt.Sprintf("event %d is missing from the journal", d.Seq+1)}
	}
	sound, reason := event.Inspect(events)
	if why := events[0].WhyUnchained(d.Hash); sound > 0 && why != "" {
		sound, reason = 0, why
	}
	if sound == 0 {
		return nil, nil, &inconsistentError{d.campaign, events[0].Seq, reason}
	}
	return events[:sound], auditOnly, nil
}

// adapt sets the length of the next chunk from the size of these events.
func (f *Replayer) adapt(events []event.Event) {
	size := 1
	for i := range events {
		size += len(events[i].Payload) + len(events[i].Metadata) + len(events[i].Tags)
	}
	f.chunk = min(mostChunk, max(1, int64(len(events))*chunkBytes/int64(size)))
}

func (d *Expected) apply(ctx context.Context, events []event.Event, auditOnly map[string]bool) error {
	for len(events) > 0 {
		done, err := d.replayer.scratch.Replay(ctx, len(events), func(i int) error {
			set, first := d.replayer.applying(events[i].Seq)
			return set.ApplyWithin(ctx, d.replayer.store.EventTimeout(), d.writer(&events[i], first), &events[i], auditOnly, d.left)
		})
		d.advance(events[:done])
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if events = events[done:]; len(events) == 0 || !d.fail(&events[0], err) {
			return fmt.Errorf("replay campaign %q: %w", d.campaign, err)
		}
	}
	return nil
}

// writer is where the statements of an event run, of a set with this index of its first one.
func (d *Expected) writer(e *event.Event, first int) projection.Tx {
	if d.replayer.marks == nil {
		return d.replayer.scratch
	}
	return d.replayer.marks.begin(e, first)
}

func (d *Expected) advance(events []event.Event) {
	for i := range events {
		if s := events[i].Skipped; s != nil {
			d.Skips[events[i].Seq] = s.ID
		}
	}
	if n := len(events); n > 0 {
		d.Seq, d.Hash, d.Events = events[n-1].Seq, events[n-1].ChainHash, d.Events+int64(n)
	}
}

// fail removes the projection that refused an event from the replay. It returns false if no
// projection is to blame.
func (d *Expected) fail(e *event.Event, err error) bool {
	name := projection.AtFault(err)
	if name == "" || d.left[name] || errors.Is(err, event.ErrBusy) {
		return false
	}
	d.Failed[name] = ReplayFailure{e.Seq, e.EventType, name, projection.CutOff(err, d.replayer.store.EventTimeout())}
	d.drop(name)
	return true
}

// first returns the first event that one of some projections refused; nil if none did.
func (d *Expected) first(names []string) (first *ReplayFailure) {
	for _, name := range names {
		if failed, is := d.Failed[name]; is && (first == nil || failed.Seq < first.Seq) {
			first = &failed
		}
	}
	return first
}

// failure returns the first event that a projection, or one whose tables it reads, refused: its
// rows are wrong from there on. It is nil if none was refused.
func (d *Expected) failure(name string) *ReplayFailure {
	needs, err := d.replayer.set.Needs(name)
	if err != nil {
		return nil
	}
	return d.first(needs)
}

// beforeFailures replays the campaign with these projections once more, up to the last event before any of them
// refuses one; it returns d itself if none does.
func (d *Expected) beforeFailures(ctx context.Context, projections ...string) (*Expected, error) {
	for {
		first := d.first(d.names)
		if first == nil {
			return d, nil
		}
		again, err := d.replayer.Begin(ctx, d.campaign, d.began, projections...)
		if err == nil {
			err = again.To(ctx, first.Seq-1)
		}
		if d = again; err != nil {
			return d, err
		}
	}
}

// Refused returns the first event that one of the projections refused, as an error; nil if all
// could be replayed. No names mean all.
func (d *Expected) Refused(projections ...string) error {
	if len(projections) == 0 {
		projections = d.names
	}
	if first := d.first(projections); first != nil {
		return fmt.Errorf("event %d of campaign %q cannot be replayed: %w", first.Seq, d.campaign, first.Err)
	}
	return nil
}

// tables returns the tables of projections, in order of creation.
func (f *Replayer) tables(names []string) []string {
	var tables []string
	for _, p := range f.set.Projections() {
		if slices.Contains(names, p.Name) {
			tables = append(tables, p.Tables...)
		}
	}
	return tables
}

// Digests returns the digests of the replayed rows, of some projections or of all replayed ones.
func (d *Expected) Digests(ctx context.Context, only ...string) (digests map[string]string, full string, err error) {
	if len(only) == 0 {
		only = d.names
	}
	return d.replayer.set.Digests(ctx, d.replayer.scratch, d.campaign, only...)
}

// refuseSchema returns a refusal with file and line of a schema statement that failed.
func refuseSchema(set *projection.Set, err error) error {
	var schema *readmodel.SchemaError
	if !errors.As(err, &schema) {
		return err
	}
	loaded := set.Projections()
	i := slices.IndexFunc(loaded, func(p *projection.Projection) bool { return p.Name == schema.Projection })
	if i < 0 {
		return err
	}
	return loaded[i].SchemaStatements[schema.Statement].Refuse(schema.Err)
}
