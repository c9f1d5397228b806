package outboxweb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/outboxweb/outboxweb"
)

// openExample opens an engine on SQLite files in a temporary directory.
func openExample() (e *outboxweb.Engine, done func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	e, err = outboxweb.Open(context.Background(), outboxweb.Config{
		JournalDB:     "sqlite:" + filepath.Join(dir, "journal.db"),
		ProjectionsDB: "sqlite:" + filepath.Join(dir, "projections.db"),
		BasePath:      "/admin/outbox",
	})
	if err != nil {
		log.Fatal(err)
	}
	return e, func() {
		e.Close()
		os.RemoveAll(dir)
	}
}

// running runs an engine until stop is called.
func running(e *outboxweb.Engine) (ctx context.Context, stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return ctx, func() error { cancel(); return <-ended }
}

// balances is a read model of wallets.
var balances = outboxweb.Projection{
	Name: "balances", Version: "1", Tables: []string{"balances"},
	Schema: `create table balances (campaign_id text primary key, cents bigint not null)`,
	On: map[string]outboxweb.Apply{
		"wallet.opened": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
			return tx.Exec(ctx, `insert into balances (campaign_id, cents) values ($1, 0)`, ev.CampaignID)
		},
		"wallet.paid": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
			var paid struct{ Cents int64 }
			if err := json.Unmarshal(ev.Payload, &paid); err != nil {
				return err
			}
			return tx.Exec(ctx, `update balances set cents = cents + $2 where campaign_id = $1`, ev.CampaignID, paid.Cents)
		},
	},
}

func Example() {
	e, done := openExample()
	defer done()
	if err := e.Project(balances); err != nil {
		log.Fatal(err)
	}
	ctx, stop := running(e)

	_, err := e.Append(ctx,
		outboxweb.Event{CampaignID: "wallet-1", EventType: "wallet.opened", Payload: json.RawMessage(`{}`)},
		outboxweb.Event{CampaignID: "wallet-1", EventType: "wallet.paid", Payload: json.RawMessage(`{"cents": 250}`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.WaitApplied(ctx, "wallet-1", 2))
	fmt.Println(stop())
	// Output:
	// <nil>
	// <nil>
}

// An event is appended once, however often its writer repeats it.
func ExampleEngine_Append() {
	e, done := openExample()
	defer done()
	opened := outboxweb.Event{CampaignID: "wallet-1", EventID: "request-77", EventType: "wallet.opened", Payload: json.RawMessage(`{}`)}
	for range 2 {
		placed, err := e.Append(context.Background(), opened)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(placed[0].Seq, placed[0].Existed)
	}
	opened.Payload = json.RawMessage(`{"currency": "EUR"}`)
	_, err := e.Append(context.Background(), opened)
	fmt.Println(errors.Is(err, outboxweb.ErrConflict))
	// Output:
	// 1 false
	// 1 true
	// true
}

// A projection may read its own tables before it changes them.
func ExampleEngine_Project() {
	e, done := openExample()
	defer done()
	err := e.Project(outboxweb.Projection{
		Name: "longest", Version: "1", Tables: []string{"longest"},
		Schema: `create table longest (campaign_id text primary key, note text not null)`,
		On: map[string]outboxweb.Apply{"noted": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
			var noted struct{ Note string }
			if err := json.Unmarshal(ev.Payload, &noted); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, `select note from longest where campaign_id = $1`, ev.CampaignID)
			if err != nil {
				return err
			}
			var longest string
			if rows.Next() {
				if err := rows.Scan(&longest); err != nil {
					return err
				}
			}
			if len(noted.Note) <= len(longest) {
				return nil
			}
			return tx.Exec(ctx, `insert into longest (campaign_id, note) values ($1, $2)
on conflict (campaign_id) do update set note = excluded.note`, ev.CampaignID, noted.Note)
		}},
	})
	fmt.Println(err)
	// Output: <nil>
}

// The console is one more route of your service, behind your own login.
func ExampleEngine_Handler() {
	e, done := openExample()
	defer done()
	identify := func(r *http.Request) (outboxweb.Operator, error) {
		session, err := r.Cookie("session") // your own session
		if err != nil {
			return outboxweb.Operator{}, err
		}
		return outboxweb.Operator{Name: session.Value, Role: outboxweb.RoleOperator}, nil
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/outbox/", e.Handler(identify))

	for _, user := range []string{"", "ana"} {
		r := httptest.NewRequest("GET", "/admin/outbox/api/v1/summary", nil)
		if user != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: user})
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 200
}

// A proxy in front of the service signs people in, and names them in a header.
func ExampleFromProxyHeader() {
	e, done := openExample()
	defer done()
	mux := http.NewServeMux()
	identify, err := outboxweb.FromProxyHeader(outboxweb.ProxyHeader{
		UserHeader: "X-Forwarded-Email",
		Trusted:    []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}, // the proxy
		Roles: map[outboxweb.Role][]string{
			outboxweb.RoleAdmin:  {"user:ana@shop.example"},
			outboxweb.RoleViewer: {"user:bo@shop.example", "user:cy@shop.example"},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("/admin/outbox/", e.Handler(identify))

	for _, from := range []string{"10.0.0.7", "192.0.2.1"} {
		for _, user := range []string{"ana@shop.example", "eve@shop.example"} {
			r := httptest.NewRequest("GET", "/admin/outbox/", nil)
			r.RemoteAddr = from + ":40123"
			r.Header.Set("X-Forwarded-Email", user)
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			fmt.Println(from, user, w.Code)
		}
	}
	// Output:
	// 10.0.0.7 ana@shop.example 200
	// 10.0.0.7 eve@shop.example 403
	// 192.0.2.1 ana@shop.example 401
	// 192.0.2.1 eve@shop.example 401
}

// A proxy signs who the user is; a request that goes around it has no signature.
func ExampleFromAssertion() {
	e, done := openExample()
	defer done()
	mux := http.NewServeMux()
	identify, err := outboxweb.FromAssertion(outboxweb.Assertion{
		Preset:   "google-iap",
		Audience: []string{"/projects/1234/global/backendServices/5678"},
		Roles:    map[outboxweb.Role][]string{outboxweb.RoleOperator: {"*"}}, // everyone whom the proxy lets in
	})
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("/admin/outbox/", e.Handler(identify))
	// There is no output, as Google's keys are far away.
}

// A publisher is a function of a batch; its position is kept in the journal.
func ExampleEngine_Publish() {
	e, done := openExample()
	defer done()
	sent := make(chan string, 10)
	mail := outboxweb.PublisherFunc(func(_ context.Context, events []outboxweb.Event) error {
		for _, ev := range events {
			sent <- ev.CampaignID // send the mail; an error lets the batch come again
		}
		return nil
	})
	if err := e.Publish(outboxweb.Topic{Name: "welcome", EventTypes: []string{"wallet.opened"}}, "mail", mail); err != nil {
		log.Fatal(err)
	}
	ctx, stop := running(e)
	if _, err := e.Append(ctx, outboxweb.Event{CampaignID: "wallet-1", EventType: "wallet.opened", Payload: json.RawMessage(`{}`)}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-sent)
	fmt.Println(stop())
	// Output:
	// wallet-1
	// <nil>
}

// A publisher that knows which event of a batch is at fault says so: those before it are delivered, and
// the console names the event.
func ExampleEventError() {
	send := func(to string) error {
		if to == "wallet-3" {
			return errors.New("550 no such mailbox")
		}
		return nil
	}
	publish := func(_ context.Context, events []outboxweb.Event) error {
		for i, ev := range events {
			if err := send(ev.CampaignID); err != nil {
				return &outboxweb.EventError{Delivered: i, Err: err}
			}
		}
		return nil
	}
	err := publish(context.Background(), []outboxweb.Event{{CampaignID: "wallet-1"}, {CampaignID: "wallet-2"}, {CampaignID: "wallet-3"}, {CampaignID: "wallet-4"}})
	var at *outboxweb.EventError
	fmt.Println(errors.As(err, &at), at.Delivered, err)
	// Output: true 2 550 no such mailbox
}

// mailer is a publisher that says whether it can deliver.
type mailer struct{ sent chan struct{} }

func (m mailer) Publish(_ context.Context, events []outboxweb.Event) error {
	for _, ev := range events {
		fmt.Println("mail for", ev.CampaignID)
	}
	close(m.sent)
	return nil
}

// Healthy is asked before the first delivery and while errors last.
func (m mailer) Healthy(context.Context) error {
	fmt.Println("the mail server answers")
	return nil
}

// A method Healthy is asked before the first delivery; the console shows its answer.
func ExamplePublisher_healthy() {
	e, done := openExample()
	defer done()
	m := mailer{make(chan struct{})}
	if err := e.Publish(outboxweb.Topic{Name: "welcome", EventTypes: []string{"wallet.opened"}}, "mail", m); err != nil {
		log.Fatal(err)
	}
	ctx, stop := running(e)
	if _, err := e.Append(ctx, outboxweb.Event{CampaignID: "wallet-1", EventType: "wallet.opened", Payload: json.RawMessage(`{}`)}); err != nil {
		log.Fatal(err)
	}
	<-m.sent
	fmt.Println(stop())
	// Output:
	// the mail server answers
	// mail for wallet-1
	// <nil>
}

// A name is taken once, also by two users at the same moment.
func ExampleEngine_AppendIf() {
	e, done := openExample()
	defer done()
	taken := outboxweb.Match{EventTypes: []string{"name.taken"}, Tags: map[string]string{"name": "ana"}}
	read, err := e.EventsMatching(context.Background(), 0, 1, taken)
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"user-1", "user-2"} {
		_, err := e.AppendIf(context.Background(), read.Position, []outboxweb.Match{taken},
			outboxweb.Event{CampaignID: user, EventType: "name.taken", Payload: json.RawMessage(`{}`), Tags: taken.Tags})
		fmt.Println(errors.Is(err, outboxweb.ErrConflict))
	}
	// Output:
	// false
	// true
}

// Events that a service wrote in its own transaction, with package intake, are moved to the journal.
func ExampleSource() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	e, err := outboxweb.Open(context.Background(), outboxweb.Config{
		JournalDB:     "sqlite:" + filepath.Join(dir, "journal.db"),
		ProjectionsDB: "sqlite:" + filepath.Join(dir, "projections.db"),
		Sources: map[string]outboxweb.Source{
			"shop":    {URL: "sqlite:" + filepath.Join(dir, "shop.db")},
			"billing": {URL: "postgres://outboxweb@db.example/billing", Table: "outbox", PollInterval: 200 * time.Millisecond},
		},
	})
	fmt.Println(err)
	e.Close()
	// Run moves the rows of both.

	_, err = outboxweb.Open(context.Background(), outboxweb.Config{
		JournalDB: "sqlite:" + filepath.Join(dir, "journal.db"), ProjectionsDB: "sqlite:" + filepath.Join(dir, "projections.db"),
		Sources: map[string]outboxweb.Source{"shop": {URL: "sqlite:"}},
	})
	fmt.Println(errors.Is(err, outboxweb.ErrSetup), err)
	// Output:
	// <nil>
	// true Sources: source "shop": the path of the SQLite file is missing; use sqlite:PATH
}
