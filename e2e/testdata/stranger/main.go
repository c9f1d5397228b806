package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/outboxweb/outboxweb"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "stranger")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	e, err := outboxweb.Open(ctx, outboxweb.Config{JournalDB: "sqlite:" + dir + "/journal.db", ProjectionsDB: "sqlite:" + dir + "/projections.db", BasePath: "/admin"})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	err = e.Project(outboxweb.Projection{Name: "orders", Version: "1", Tables: []string{"orders"},
		Schema: `create table orders (campaign_id text primary key, item text not null)`,
		On: map[string]outboxweb.Apply{"order.placed": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
			var p struct{ Item string }
			if err := json.Unmarshal(ev.Payload, &p); err != nil {
				return err
			}
			return tx.Exec(ctx, `insert into orders (campaign_id, item) values ($1, $2)`, ev.CampaignID, p.Item)
		}}})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	placed, err := e.Append(ctx, outboxweb.Event{CampaignID: "order-17", EventType: "order.placed", Payload: json.RawMessage(`{"item":"tea"}`)})
	if err != nil {
		log.Fatal(err)
	}
	if err := e.WaitApplied(ctx, "order-17", placed[0].Seq); err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	e.Handler(func(*http.Request) (outboxweb.Operator, error) {
		return outboxweb.Operator{Name: "ana", Role: outboxweb.RoleViewer}, nil
	}).ServeHTTP(w, httptest.NewRequest("GET", "/admin/api/v1/campaigns/order-17", nil))
	fmt.Println(w.Code, w.Body.String())
	stop()
	fmt.Println(<-done)
}
