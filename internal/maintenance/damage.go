package maintenance

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// errNameless is a campaign whose id is unreadable.
var errNameless = errors.New("the campaigns table cannot be read beyond this point")

// nameAfter is the id of the next campaign after an id, even if its row is unreadable.
func (m *Maintenance) nameAfter(ctx context.Context, after string) (id string, err error) {
	for _, table := range []string{"campaigns", "events"} {
		err = m.core.Journal().Read(ctx, func(t *store.Tx) error {
			_, err := t.One([]any{&id}, "select campaign_id from "+table+" where campaign_id > $1 order by campaign_id limit 1", after)
			return err
		})
		if !errors.Is(err, event.ErrDamaged) {
			break
		}
	}
	if err == nil && id == "" {
		err = errNameless
	}
	return id, err
}

// visiting visits the next campaigns after an id, at most limit, and returns the last one's id, which is
// empty at the end.
type visiting func(after string, limit int) (last string, err error)

// page calls visit for the next campaigns after an id, at most limit. When data of one of them is
// unreadable it calls visit for each of them alone, and the error is a CampaignError per campaign for
// which that fails because of damage.
func (m *Maintenance) page(ctx context.Context, after string, limit int, visit visiting) (last string, err error) {
	last, err = visit(after, limit)
	if !errors.Is(err, event.ErrDamaged) {
		return last, err
	}
	var damaged []error
	for range limit {
		id, err := visit(after, 1)
		if errors.Is(err, event.ErrDamaged) {
			cause := err
			if id, err = m.nameAfter(ctx, after); err != nil {
				return "", errors.Join(append(damaged, fmt.Errorf("after campaign %q: %w: %w", after, err, cause))...)
			}
			damaged = append(damaged, &outbox.CampaignError{CampaignID: id, Err: cause})
		}
		if err != nil {
			return "", err
		}
		if after = id; id == "" {
			break
		}
	}
	return after, errors.Join(damaged...)
}

// pages calls visit for all campaigns, page by page. Unreadable ones are skipped; the error then is
// event.ErrDamaged and names each.
func (m *Maintenance) pages(ctx context.Context, visit visiting) error {
	var damaged []error
	for after := ""; ; {
		last, err := m.page(ctx, after, campaignPage, visit)
		if errors.Is(err, event.ErrDamaged) {
			damaged = append(damaged, err)
		} else if err != nil {
			return err
		}
		if after = last; after == "" {
			return errors.Join(damaged...)
		}
	}
}
