package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Limits of a fixture, and of its file.
const (
	fixtureEvents = 2000
	fixtureBytes  = 10 << 20 // of the events' documents
	fixtureFile   = 32 << 20
)

// MakeFixture makes a fixture of an event that projections of the set refuse, as Explain says. One that they do not
// refuse is event.ErrConflict, as is one with too many events before it; an unknown one is event.ErrNotFound.
func MakeFixture(ctx context.Context, q *outbox.Queue, set *projection.Set, hide projection.Hider, on event.RowKey) (f projection.Fixture, err error) {
	f = projection.Fixture{Form: projection.FixtureForm, Database: set.Dialect(), Notes: []string{}, Projections: set.Files()}
	if f.Expected, err = Explain(ctx, q, set, hide, on.CampaignID, on.Seq); err != nil {
		return f, err
	}
	if len(f.Expected.Failures) == 0 {
		return f, event.Conflict("event %d of campaign %q does not fail, as far as is known; a fixture is of an event that fails", on.Seq, on.CampaignID)
	}
	if f.Database != "sqlite" {
		f.Notes = append(f.Notes, "The event failed on PostgreSQL. It is reproduced on SQLite, which accepts some values that PostgreSQL refuses.")
	}
	c, err := q.Campaign(ctx, on.CampaignID)
	if f.LiveBefore = c.AppliedSeq >= on.Seq-1; err == nil {
		err = asFailed(ctx, q.Store, set, &f)
	}
	if err != nil {
		return f, err
	}
	loaded, auditOnly, err := q.Load(ctx, []store.Range{{CampaignID: on.CampaignID, First: 1, Last: min(on.Seq, fixtureEvents)}}, fixtureBytes)
	if err != nil {
		return f, err
	}
	if f.Events, f.AuditOnly = loaded[0].Events, auditOnly; int64(len(f.Events)) < on.Seq {
		err = event.Conflict("a fixture of event %d of campaign %q needs all events up to it; it holds at most %s and %s", on.Seq, on.CampaignID, event.Count(fixtureEvents, "event", "events"), event.Bytes(fixtureBytes))
	}
	return f, err
}

// asFailed gives a fixture the files with which its projections failed, as far as their texts are kept.
func asFailed(ctx context.Context, s *store.Store, set *projection.Set, f *projection.Fixture) error {
	for i := range f.Expected.Failures {
		x := &f.Expected.Failures[i]
		x.Existing = nil // a row that may be another campaign's
		at := slices.IndexFunc(f.Projections, func(p projection.File) bool { return p.Projection == x.Projection })
		if at < 0 {
			return event.Conflict("the error is not one of a projection's file that is loaded, so it cannot be reproduced from files: %s", x.Error)
		}
		f.Notes = append(f.Notes, set.Named(x.Projection).SharedNotes()...)
		if x.VersionChanged() == "" {
			continue
		}
		d, err := s.Definition(ctx, x.Projection, x.FailedVersion)
		switch {
		case err != nil:
			return err
		case d.File.Text != "":
			f.Projections[at].Text, x.Statement = d.File.Text, nil // which is of the loaded version
		}
		f.Notes = append(f.Notes, x.VersionChanged())
	}
	return nil
}

// ReadFixture reads the file of a fixture. One that is none is an event.ErrSetup refusal.
func ReadFixture(from io.Reader) (f projection.Fixture, err error) {
	text, err := io.ReadAll(io.LimitReader(from, fixtureFile+1))
	if err != nil {
		return f, err
	}
	err, n := json.Unmarshal(text, &f), len(f.Events)
	switch {
	case len(text) > fixtureFile:
		return f, event.Setup("the file has more than %s", event.Bytes(fixtureFile))
	case !json.Valid(text):
		return f, event.Setup("the file is not JSON, or its end is missing")
	case err != nil || f.Form != projection.FixtureForm:
		return f, event.Setup("the file is not a fixture of form %d, which this version of outboxweb reads", projection.FixtureForm)
	case n == 0 || n > fixtureEvents || len(f.Expected.Failures) == 0 || f.Events[n-1].Seq != f.Expected.Seq:
		return f, event.Setup("the file does not end with the event that fails, or does not say how it fails")
	}
	for i := range f.Events {
		for _, document := range []*json.RawMessage{&f.Events[i].Payload, &f.Events[i].Metadata, &f.Events[i].Tags} {
			var compact bytes.Buffer // as it is in a journal, however the file is formatted
			if json.Compact(&compact, *document) == nil {
				*document = compact.Bytes()
			}
		}
	}
	return f, nil
}

// Reproduced is what became of a fixture's event.
type Reproduced struct {
	Alike bool // it fails as it does in the fixture
	Says  string
	Notes []string // why it may not fail alike here, if it does not, or the words of the file
}

// Reproduce applies the events of a fixture with its projections, in scratch tables of a store that holds nothing. A
// fault in the files is an event.ErrSetup refusal with file and line.
func Reproduce(ctx context.Context, s *store.Store, f projection.Fixture) (r Reproduced, err error) {
	set, err := projection.OfTexts(ctx, f.Projections)
	if err != nil {
		return r, err
	}
	replayer, err := NewReplayer(ctx, s, set)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, replayer.Close()) }()
	d, err := replayer.Begin(ctx, f.Expected.CampaignID, nil)
	if err == nil {
		err = d.apply(ctx, f.Events, f.AuditOnly)
	}
	if err != nil {
		return r, err
	}
	for _, want := range f.Expected.Failures {
		if r.Says = differs(&f, set, want, d.Failed); r.Says != "" {
			r.Notes = f.Notes
			return r, nil
		}
	}
	want := f.Expected.Failures[0]
	r.Alike, r.Says = true, "fails alike: "+d.Failed[want.Projection].Err.Error()
	if !strings.HasSuffix(r.Says, want.Error) {
		r.Notes = []string{"In the words of the file: " + want.Error}
	}
	return r, nil
}

// differs says how an expected failure and what happened differ; empty if they do not.
func differs(f *projection.Fixture, set *projection.Set, want projection.ExplainedFailure, failed map[string]ReplayFailure) string {
	got, refused := failed[want.Projection]
	switch n := f.Expected.Seq; {
	case !refused:
		return fmt.Sprintf("event %d is applied to projection %s without an error; in the file it fails: %s", n, want.Projection, want.Error)
	case got.Seq != n:
		return fmt.Sprintf("projection %s refuses event %d already: %v", want.Projection, got.Seq, got.Err)
	case !f.Alike(set, want, got.Err.Error()):
		return fmt.Sprintf("event %d fails with another error: %v; in the file: %s", n, got.Err, want.Error)
	}
	return ""
}
