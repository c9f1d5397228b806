// Package outboxweb keeps read models in step with an event journal, inside your own Go service.
//
// Events are appended to a journal, per campaign: the scope within which their order counts, such as
// an order, a wallet or a tenant. Each event is applied to the read models exactly once and in order,
// even if the process is killed, by a worker that retries with growing delays and leaves what it
// cannot apply to an operator. The console shows that, and has the repairs.
//
//	e, err := outboxweb.Open(ctx, outboxweb.Config{JournalDB: "sqlite:data/journal.db", ProjectionsDB: "sqlite:data/projections.db", BasePath: "/admin/outbox"})
//	if err != nil { … }
//	defer e.Close()
//	err = e.Project(outboxweb.Projection{Name: "orders", Version: "1", Tables: …, Schema: …, On: …})
//	mux.Handle("/admin/outbox/", e.Handler(identify))
//	go e.Run(ctx)
//	_, err = e.Append(ctx, outboxweb.Event{CampaignID: "order-17", EventType: "order.placed", Payload: …})
//
// A projection can be written in Go, with Project, or as an SQL file that Config.Projections names.
//
// # Errors
//
// What a caller can cause or must know is one of ErrInvalid, ErrTooLarge, ErrConflict, ErrNotFound,
// ErrNotYet, ErrSetup, ErrBusy, ErrReadOnly and ErrFull; test with errors.Is. The text is a sentence
// for a person.
//
// # Compatibility
//
// The module follows semantic versioning. Before version 1, a minor version may change what this
// package exports, and says so in CHANGELOG.md; a check compares its exported names with the last
// accepted ones. Everything below internal is private.
package outboxweb
