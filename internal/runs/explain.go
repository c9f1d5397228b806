package runs

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/queue"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// explainTime bounds the reading of live rows for an explanation.
const explainTime = 2 * time.Second

// ExplainedBytes is the size of the largest event whose values are explained: pages read an
// explanation again and again.
const ExplainedBytes = 1 << 20

// Explain says why projections cannot apply an event: the last error of its row or of its rehearsal in
// shadow mode, and the open failure of each quarantined projection. It changes nothing, and reads live
// rows only where the projections database answers in time. A missing event is outbox.ErrNotFound.
func Explain(ctx context.Context, q *queue.Queue, set *projection.Set, hide outbox.Hider, campaign string, seq int64) (outbox.EventExplanation, error) {
	row, err := q.RowWithin(ctx, campaign, seq, 0)
	event, sizes := row.Event, row.Sizes
	if errors.Is(err, outbox.ErrNotFound) {
		var d outbox.EventDetail
		d, err = q.EventWithin(ctx, campaign, seq, 0)
		event, sizes = d.Event, d.Sizes
	}
	if err != nil {
		return outbox.EventExplanation{}, err
	}
	x := outbox.EventExplanation{CampaignID: campaign, Seq: seq, EventType: event.EventType, Failures: []outbox.ExplainedFailure{}}
	failures, err := openFailures(ctx, q.Store, campaign, seq, row)
	if err != nil || len(failures) == 0 {
		return x, err
	}
	if sizes.Payload+sizes.Tags+sizes.Metadata > ExplainedBytes {
		for i := range failures {
			failures[i].Unexplained = "The event is larger than " + outbox.Bytes(ExplainedBytes) + ", so its values are not read here."
		}
		x.Failures = failures
		return x, nil
	}
	if event, err = q.Event(ctx, campaign, seq); err != nil {
		return x, err
	}
	ctx, cancel := context.WithTimeout(ctx, explainTime)
	defer cancel()
	var live projection.Queryer
	if snapshot, err := q.ReadModel().Live(ctx); err == nil {
		defer snapshot.Close()
		live = readmodel.AsApplied{Live: snapshot}
	}
	for _, f := range failures {
		explained := set.Explain(ctx, live, &event, f.Error, hide)
		explained.FailedVersion = f.FailedVersion
		explained.Projection = cmp.Or(explained.Projection, f.Projection)
		x.Failures = append(x.Failures, explained)
	}
	return x, nil
}

// openFailures returns the last error of an event's row, which may be empty, and reads the open
// failures of projections at it: those that no attempt has resolved, unexplained. While the projections
// database is away it returns the row's.
func openFailures(ctx context.Context, s *store.Store, campaign string, seq int64, d outbox.RowDetail) ([]outbox.ExplainedFailure, error) {
	var all []outbox.ExplainedFailure
	if d.Row.LastError != "" {
		f := outbox.ExplainedFailure{Error: d.Row.LastError}
		if len(d.Attempts) > 0 {
			last := d.Attempts[0]
			f = outbox.ExplainedFailure{Error: last.Error, Projection: last.Projection, FailedVersion: last.ProjectionVersion}
		}
		all = append(all, f)
	} else if d.Rehearsal != nil && d.Rehearsal.Error != "" {
		all = append(all, outbox.ExplainedFailure{Error: d.Rehearsal.Error})
	}
	open, err := s.ReadModel().Failures(ctx, outbox.FailureFilter{CampaignID: campaign, Status: outbox.FailureOpen, Limit: 200})
	if err != nil {
		if len(all) == 0 {
			return nil, err
		}
		return all, nil
	}
	for _, f := range open.Items {
		if f.Seq == seq && (len(all) == 0 || f.Projection != all[0].Projection) {
			all = append(all, outbox.ExplainedFailure{Error: f.Message, Projection: f.Projection})
		}
	}
	return all, nil
}
