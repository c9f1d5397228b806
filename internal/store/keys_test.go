package store_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestIdempotencyKey_isOfWhoeverUsedItFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	order := outbox.Command{By: outbox.Operator{Name: "ana", Via: "page", Auth: outbox.AuthJWT, Role: outbox.RoleAdmin}, IdempotencyKey: "k"}
	f.must(f.PauseCampaign(f.Ctx, order, "a"))
	for _, by := range []outbox.Operator{
		{Name: "bob", Via: "page", Auth: outbox.AuthJWT, Role: outbox.RoleAdmin},
		{Name: "ana", Via: "page", Auth: outbox.AuthToken, Role: outbox.RoleAdmin},
	} {
		other := order
		other.By = by
		_, err := f.PauseCampaign(f.Ctx, other, "a")
		refused(t, err, outbox.ErrConflict, "used by another identity")
	}
	order.By.Via = "api"
	if _, err := f.PauseCampaign(f.Ctx, order, "a"); err != nil {
		t.Errorf("the same person again: %v", err)
	}
}
