package runs

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
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
// rows only where the projections database answers in time. A missing event is event.ErrNotFound.
func Explain(ctx context.Context, q *outbox.Queue, set *projection.Set, hide projection.Hider, campaignID string, seq int64) (projection.EventExplanation, error) {
	row, err := q.RowWithin(ctx, campaignID, seq, 0)
	e, sizes := row.Event, row.Sizes
	if errors.Is(err, event.ErrNotFound) {
		var d campaign.EventDetail
		d, err = q.EventWithin(ctx, campaignID, seq, 0)
		e, sizes = d.Event, d.Sizes
	}
	if err != nil {
		return projection.EventExplanation{}, err
	}
	x := projection.EventExplanation{CampaignID: campaignID, Seq: seq, EventType: e.EventType, Failures: []projection.ExplainedFailure{}}
	failures, err := openFailures(ctx, q.Store, campaignID, seq, row)
	if err != nil || len(failures) == 0 {
		return x, err
	}
	if sizes.Payload+sizes.Tags+sizes.Metadata > ExplainedBytes {
		for i := range failures {
			failures[i].Unexplained = "The event is larger than " + event.Bytes(ExplainedBytes) + ", so its values are not read here."
		}
		x.Failures = failures
		return x, nil
	}
	if e, err = q.Event(ctx, campaignID, seq); err != nil {
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
		explained := set.Explain(ctx, live, &e, f.Error, hide)
		explained.FailedVersion = f.FailedVersion
		explained.Projection = cmp.Or(explained.Projection, f.Projection)
		x.Failures = append(x.Failures, explained)
	}
	return x, nil
}

// openFailures returns the last error of an event's row, which may be empty, and reads the open
// failures of projections at it: those that no attempt has resolved, unexplained. While the projections
// database is away it returns the row's.
func openFailures(ctx context.Context, s *store.Store, campaignID string, seq int64, d campaign.RowDetail) ([]projection.ExplainedFailure, error) {
	var all []projection.ExplainedFailure
	if d.Row.LastError != "" {
		f := projection.ExplainedFailure{Error: d.Row.LastError}
		if len(d.Attempts) > 0 {
			last := d.Attempts[0]
			f = projection.ExplainedFailure{Error: last.Error, Projection: last.Projection, FailedVersion: last.ProjectionVersion}
		}
		all = append(all, f)
	} else if d.Rehearsal != nil && d.Rehearsal.Error != "" {
		all = append(all, projection.ExplainedFailure{Error: d.Rehearsal.Error})
	}
	open, err := s.ReadModel().Failures(ctx, campaign.FailureFilter{CampaignID: campaignID, Status: campaign.FailureOpen, Limit: 200})
	if err != nil {
		if len(all) == 0 {
			return nil, err
		}
		return all, nil
	}
	for _, f := range open.Items {
		if f.Seq == seq && (len(all) == 0 || f.Projection != all[0].Projection) {
			all = append(all, projection.ExplainedFailure{Error: f.Message, Projection: f.Projection})
		}
	}
	return all, nil
}
