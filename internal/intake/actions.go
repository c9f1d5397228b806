package intake

import (
	"context"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// rejectionChange is an action on a rejected row in its audit record.
type rejectionChange struct {
	Source     string                        `json:"source"`
	ID         int64                         `json:"rejection"`
	RowKey     string                        `json:"row_key,omitempty"`
	CampaignID string                        `json:"campaign_id,omitempty"`
	EventID    string                        `json:"event_id,omitempty"`
	Reason     string                        `json:"reason,omitempty"` // why it was rejected
	Status     inbound.IntakeRejectionStatus `json:"status,omitempty"`
}

// Retry lets the process that has the source try a rejected row again, as it is in its table then. If
// it fails, it is rejected with the new reason. A row that is gone from its table no longer holds its
// campaign.
func (in *Intake) Retry(ctx context.Context, o operator.Command, source string, id int64) (inbound.IntakeRejection, error) {
	return in.change(ctx, o, operator.ActionIntakeRetry, inbound.IntakeRetrying, source, id)
}

// Discard lets the process that has the source delete a rejected row from its table. Its content stays
// in the rejection. It requires a reason.
func (in *Intake) Discard(ctx context.Context, o operator.Command, source string, id int64) (inbound.IntakeRejection, error) {
	return in.change(ctx, o, operator.ActionIntakeDiscard, inbound.IntakeDiscarding, source, id)
}

const updateRejection = `
update intake_rejections
set status = $3, changed_at = $4, changed_by = $5, change_reason = $6
where source = $1
  and id = $2`

func (in *Intake) change(ctx context.Context, o operator.Command, action operator.Action, to inbound.IntakeRejectionStatus, source string, id int64) (inbound.IntakeRejection, error) {
	asked := rejectionChange{Source: source, ID: id}
	c := &store.Change{Command: o, Action: action, Target: operator.IntakeTarget(source), Before: asked, Asked: asked}
	return store.Perform(ctx, in.core, c, func(t *store.Tx, now int64) (r inbound.IntakeRejection, err error) {
		found, err := sqldb.All(t, scanRejection, selectRejection+t.ForUpdate, source, id)
		switch {
		case err != nil:
			return r, err
		case len(found) == 0:
			return r, in.missing(t, source, id)
		}
		switch r = found[0]; {
		case r.Status != inbound.IntakeOpen:
			return r, event.Conflict("rejected row %d is %s, not open", id, r.Status)
		case to == inbound.IntakeDiscarding && strings.TrimSpace(o.Reason) == "":
			return r, event.Invalid("reason", "discarding an event requires a reason")
		}
		if err := in.core.RequireReason(o, 1); err != nil {
			return r, err
		}
		if err := action.Confirm(o.Confirm, operator.Reach{Discards: r.Discards()}); err != nil {
			return r, err
		}
		r.Status, r.ChangedAt, r.ChangedBy, r.ChangeReason = to, new(sqldb.At(now)), o.By.Name, o.Reason
		c.After = rejectionChange{Source: source, ID: id, RowKey: r.RowKey, CampaignID: r.CampaignID, EventID: r.EventID, Reason: r.Reason, Status: to}
		_, err = t.Exec(updateRejection, source, id, string(to), now, o.By.Name, o.Reason)
		return r, err
	})
}

const (
	selectOwned = `
select owner, owned_since, handed_over, (select id from journal_identity)
from intake_sources
where source = $1`

	handOver = `
update intake_sources
set handed_over = owned_since
where source = $1`
)

// HandOver lets the process that has the source in its configuration take it from the journal that it
// belongs to. It requires a reason. It is event.ErrConflict if the source does not belong to another
// journal, as far as is known.
func (in *Intake) HandOver(ctx context.Context, o operator.Command, source string) (operator.IntakeHandOver, error) {
	asked := operator.IntakeHandOver{Source: source}
	c := &store.Change{Command: o, Action: operator.ActionIntakeHandOver, Target: operator.IntakeTarget(source), Before: asked, Asked: asked}
	return store.Perform(ctx, in.core, c, func(t *store.Tx, now int64) (operator.IntakeHandOver, error) {
		h := asked
		var since, handed int64
		found, err := t.One([]any{&h.From, &since, &handed, &h.To}, selectOwned+t.ForUpdate, source)
		switch {
		case err != nil:
			return h, err
		case !found:
			return h, in.missing(t, source, 0)
		case h.From == "":
			return h, event.Conflict("source %s does not belong to another journal, as far as this one knows; a server finds that out when it reads it", source)
		case since == handed:
			return h, event.Conflict("source %s is handed over already; its server takes it at the next read", source)
		case strings.TrimSpace(o.Reason) == "":
			return h, event.Invalid("reason", "handing a source over requires a reason")
		}
		if err := operator.ActionIntakeHandOver.Confirm(o.Confirm, operator.Reach{Takes: h}); err != nil {
			return h, err
		}
		c.After = h
		_, err = t.Exec(handOver, source)
		return h, err
	})
}

// missing is the refusal of a source, or of its rejected row, that does not exist.
func (in *Intake) missing(t *store.Tx, source string, id int64) error {
	known, err := sqldb.All(t, sqldb.Column[string], `select source from intake_sources order by source`)
	if err != nil {
		return err
	}
	for _, s := range in.Settings.Sources {
		if !slices.Contains(known, s.Name) {
			known = append(known, s.Name)
		}
	}
	switch {
	case !slices.Contains(known, source):
		return noSource(source, known)
	case id == 0:
		return event.Conflict("source %s has not been read yet", source)
	}
	return event.NotFound("source %s has no rejected row %d; it may be in the journal by now, or it is of another source", source, id)
}
