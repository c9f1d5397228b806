package main

import (
	"context"
	"encoding/json"

	"github.com/outboxweb/outboxweb"
)

// orderStates is a read model in Go: the state of each order.
var orderStates = outboxweb.Projection{
	Name: "order_states", Version: "1", Tables: []string{"order_states"},
	Schema: `create table order_states (campaign_id text primary key, product text not null, quantity bigint not null, state text not null)`,
	On: map[string]outboxweb.Apply{
		"order.placed": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
			var order struct {
				Product  string
				Quantity int
			}
			if err := json.Unmarshal(ev.Payload, &order); err != nil {
				return err
			}
			return tx.Exec(ctx, `insert into order_states (campaign_id, product, quantity, state) values ($1, $2, $3, 'placed')`,
				ev.CampaignID, order.Product, order.Quantity)
		},
		"order.shipped": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
			return tx.Exec(ctx, `update order_states set state = 'shipped' where campaign_id = $1`, ev.CampaignID)
		},
	},
}
