package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// appendCmd appends events from JSON Lines.
type appendCmd struct {
	File  string `arg:"" help:"The file to read, or - for stdin."`
	Batch int    `default:"500" placeholder:"N" least:"1" most:"10000" help:"Maximum lines per transaction; fewer if the lines are large."`
	jsonFlag

	Condition string `placeholder:"JSON|@FILE" help:"Append all lines in one transaction, and only if no event in the journal conflicts with this condition, such as {\"after_position\": N, \"items\": [{\"event_types\": […], \"tags\": {…}}]} says: no event of any item after the position."`
}

// appendResult is what append prints.
type appendResult struct {
	Appended     int           `json:"appended"`
	AlreadyThere int           `json:"already_there"`
	Refused      []refusedLine `json:"refused"`
	NotWritten   int           `json:"not_written"` // valid lines of a batch that has a refused line
	NotApplied   []string      `json:"not_applied"` // in inline mode: campaigns with events that are not applied yet; workers apply them
	Position     int64         `json:"position"`    // of the last event appended or already present; 0 without one

	unread bool // there are lines after the batch

	BlockingEvent *event.EventRef `json:"blocking_event,omitempty"` // why the condition does not hold
}

// refusedLine says what is wrong with one line.
type refusedLine struct {
	Line   int    `json:"line"`
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Run appends batch by batch and stops at the first batch with a bad line.
func (c *appendCmd) Run(ctx context.Context, a *app) error {
	condition, err := readCondition(c.Condition)
	if err != nil {
		return err
	}
	in, size, err := a.openInput(c.File)
	if err != nil {
		return err
	}
	defer in.Close()
	ap, err := a.newAppender(ctx)
	if err != nil {
		return err
	}
	defer ap.store.Close()
	lines := newLineReader(in, 3*a.MaxPayload+64<<10)
	bar := a.progress("append")
	var total appendResult
	ap.condition = condition
	for err == nil && len(total.Refused) == 0 {
		var b batch
		if b, err = readBatch(lines, c.Batch); err != nil || b.empty() {
			break
		}
		if condition != nil {
			err = c.refuseMore(lines)
		}
		if err == nil {
			err = ap.append(ctx, b, &total)
		}
		bar.set(lines.bytes, size)
	}
	bar.end()
	if err == nil && len(total.Refused) > 0 {
		rest, readErr := readBatch(lines, 1)
		total.unread = readErr != nil || !rest.empty()
	}
	return cmp.Or(err, c.print(a, total))
}

// readCondition parses --condition; empty means an unconditional append.
func readCondition(given string) (*event.AppendCondition, error) {
	if given == "" {
		return nil, nil
	}
	text := []byte(given)
	if name, named := strings.CutPrefix(given, "@"); named {
		var err error
		if text, err = os.ReadFile(name); err != nil {
			return nil, usagef("--condition: cannot read %s: %v", name, errors.Unwrap(err))
		}
	}
	condition, err := event.ParseCondition(text)
	if err != nil {
		return nil, asUsage("--condition", err)
	}
	return &condition, nil
}

// refuseMore refuses lines after the first batch: a condition is for all lines or none.
func (c *appendCmd) refuseMore(lines *lineReader) error {
	more, err := readBatch(lines, 1)
	if err == nil && !more.empty() {
		err = usagef("--condition: the input is more than one batch, and a condition applies to one: append fewer lines or raise --batch above %d (a batch holds at most %d MiB)", c.Batch, batchBytes>>20)
	}
	return err
}

func (c *appendCmd) print(a *app, r appendResult) error {
	for _, same := range byDetail(r.Refused) {
		if len(same) == 1 {
			fmt.Fprintf(a.err, "outboxweb: line %d: %s\n", same[0].Line, same[0].Detail)
			continue
		}
		fmt.Fprintf(a.err, "outboxweb: %d lines: %s%s\n", len(same), same[0].Detail, lineNumbers(same))
	}
	if len(r.Refused) > 0 && r.NotWritten > 0 {
		fmt.Fprintf(a.err, "outboxweb: %s of the same batch not written\n", event.Count(int64(r.NotWritten), "event", "events"))
	}
	if r.unread {
		fmt.Fprintln(a.err, "outboxweb: later lines were not read")
	}
	r.Refused, r.NotApplied = append([]refusedLine{}, r.Refused...), append([]string{}, r.NotApplied...) // lists rather than null
	err := c.jsonFlag.print(a, r, "appended %d, already there %d, refused %d%s", r.Appended, r.AlreadyThere, len(r.Refused), lineNumbers(r.Refused))
	return cmp.Or(err, problems(len(r.Refused)+len(r.NotApplied) > 0))
}

// byDetail groups lines of the same detail, in the order of the first of each.
func byDetail(refused []refusedLine) (groups [][]refusedLine) {
	for _, line := range refused {
		i := slices.IndexFunc(groups, func(same []refusedLine) bool { return same[0].Detail == line.Detail })
		if i < 0 {
			groups, i = append(groups, nil), len(groups)
		}
		groups[i] = append(groups[i], line)
	}
	return groups
}

func lineNumbers(refused []refusedLine) string {
	if len(refused) == 0 {
		return ""
	}
	const most = 20
	var numbers []string
	for _, r := range refused[:min(len(refused), most)] {
		numbers = append(numbers, strconv.Itoa(r.Line))
	}
	if len(refused) > most {
		numbers = append(numbers, "…")
	}
	word := "line"
	if len(refused) > 1 {
		word = "lines"
	}
	return fmt.Sprintf(" (%s %s)", word, strings.Join(numbers, ", "))
}

// openInput opens a file for reading, or stdin for "-". The size is 0 when unknown.
func (a *app) openInput(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(a.in), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, usagef("FILE: cannot read %s: %v", name, errors.Unwrap(err))
	}
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		f.Close()
		return nil, 0, usagef("FILE: %s is not a file", name)
	}
	return f, info.Size(), nil
}

// appender appends batches and, in inline mode, applies them.
type appender struct {
	*app
	store     *engine.Engine
	worker    *worker.Worker         // nil unless the mode is inline
	condition *event.AppendCondition // of every batch; nil without one
}

func (a *app) newAppender(ctx context.Context) (*appender, error) {
	ap := &appender{app: a}
	o := a.storeOptions()
	o.NoCreate = a.NoMigrate
	var err error
	if campaign.Mode(a.Mode) != campaign.ModeInline {
		ap.store, err = a.openStore(ctx, o)
		return ap, err
	}
	var set *projection.Set
	if ap.store, set, err = a.openUninstalled(ctx, o); err == nil {
		if err = install(ctx, ap.store, set); err != nil {
			ap.store.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	ap.worker = worker.New(worker.Config{Queue: ap.store.Queue, Set: set, Metrics: metrics.New(ap.store.Summary),
		Mode: campaign.ModeInline, Build: version, Logger: a.logger()})
	return ap, nil
}

// append writes one batch and adds to the result. A batch with a refused line
// writes nothing; every refused line of it is reported.
func (p *appender) append(ctx context.Context, b batch, r *appendResult) error {
	if len(b.refused) > 0 {
		p.refuse(b, r)
		return nil
	}
	landed, err := p.store.Append(ctx, store.Append{Events: b.events, Condition: p.condition})
	refusal, ok := errors.AsType[*event.Refusal](err)
	if ok && (refusal.BlockingEvent != nil || strings.HasPrefix(refusal.Field, "condition")) {
		r.BlockingEvent = refusal.BlockingEvent
		return refusal
	}
	if ok && refusal.Index < len(b.lines) && !errors.Is(err, event.ErrSetup) {
		b.refuse(refusal.Index, refusal)
		p.refuse(b, r)
		return nil
	}
	if err != nil {
		return fmt.Errorf("append lines %d to %d: %w", b.lines[0], b.lines[len(b.lines)-1], err)
	}
	for _, one := range landed {
		r.Position = max(r.Position, one.Position)
		if one.Existed {
			r.AlreadyThere++
		} else {
			r.Appended++
		}
	}
	return p.applyInline(ctx, landed, r)
}

// refuse reports the batch's refused lines, including those that only the store's checks refused.
func (p *appender) refuse(b batch, r *appendResult) {
	known := map[int]bool{}
	for _, bad := range b.refused {
		known[bad.Line] = true
	}
	for i := range b.events {
		if known[b.lines[i]] {
			continue
		}
		if refusal, ok := errors.AsType[*event.Refusal](b.events[i].Normalize(p.MaxPayload)); ok {
			b.refuse(i, refusal)
		}
	}
	slices.SortFunc(b.refused, func(x, y refusedLine) int { return cmp.Compare(x.Line, y.Line) })
	r.Refused = append(r.Refused, b.refused...)
	r.NotWritten += b.size - len(b.refused)
}

// applyInline applies the events that a batch appended, in inline mode. A campaign whose events
// have to wait is reported once and does not delay the other campaigns.
func (p *appender) applyInline(ctx context.Context, landed []store.Appended, r *appendResult) error {
	if p.worker == nil {
		return nil
	}
	done := map[string]bool{}
	for _, one := range landed {
		if done[one.CampaignID] {
			continue
		}
		done[one.CampaignID] = true
		err := p.worker.ApplyInline(ctx, one.CampaignID)
		known := slices.Index(r.NotApplied, one.CampaignID)
		switch waits := errors.Is(err, event.ErrConflict) || errors.Is(err, event.ErrNotYet); {
		case waits && known < 0:
			fmt.Fprintf(p.err, "outboxweb: %v\n", err)
			r.NotApplied = append(r.NotApplied, one.CampaignID)
		case err != nil && !waits:
			return fmt.Errorf("apply campaign %q: %w", one.CampaignID, err)
		case err == nil && known >= 0: // its rows are applied as well
			r.NotApplied = slices.Delete(r.NotApplied, known, known+1)
		}
	}
	return nil
}
