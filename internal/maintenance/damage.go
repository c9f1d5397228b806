package maintenance

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// errNameless is a campaign whose id is unreadable.
var errNameless = errors.New("the campaigns table cannot be read beyond this point")

// nameAfter is the id of the next campaign after an id, even if its row is unreadable.
func (m *Maintenance) nameAfter(ctx context.Context, after string) (id string, err error) {
	for _, table := range []string{"campaigns", "events"} {
		err = m.read(ctx, func(t *tx) error {
			_, err := t.One([]any{&id}, "select campaign_id from "+table+" where campaign_id > $1 order by campaign_id limit 1", after)
			return err
		})
		if !errors.Is(err, outbox.ErrDamaged) {
			break
		}
	}
	if err == nil && id == "" {
		err = errNameless
	}
	return id, err
}

// oneByOne calls visit for each of the next campaigns after an id, at most limit. It is used
// when data of one of them is unreadable. visit processes the campaign after an id and returns
// that campaign's id, or an empty one at the end. When visit fails because of damage the next
// campaign is visited. oneByOne returns the last id, empty at the end, and a CampaignError per
// failed campaign.
func (m *Maintenance) oneByOne(ctx context.Context, after string, limit int, visit func(after string) (string, error)) (last string, err error) {
	var damaged []error
	for range limit {
		id, err := visit(after)
		if errors.Is(err, outbox.ErrDamaged) {
			cause := err
			if id, err = m.nameAfter(ctx, after); err != nil {
				return "", errors.Join(append(damaged, fmt.Errorf("after campaign %q: %w: %w", after, err, cause))...)
			}
			damaged = append(damaged, &store.CampaignError{CampaignID: id, Err: cause})
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
