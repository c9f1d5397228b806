package sqldb

import (
	"context"
	"errors"
)

// Within runs fn in one transaction on a certain connection, and commits it when fn returns nil.
type Within func(begin Begin, fn func(*Tx) error) error

// OnConnect registers a function that is called on every new connection before its first transaction:
// the server may be another one than that of the connections before. When it returns an error the
// connection is given up. Register it before the database is used; on SQLite, whose connections are
// to a file that is open, it is never called.
func (d *DB) OnConnect(met func(Within) error) {
	if d.url != nil {
		d.met = met
	}
}

// connected dials with dial, and calls what OnConnect registered.
func (d *DB) connected(dial func(context.Context) (link, error)) func(context.Context) (link, error) {
	return func(ctx context.Context) (link, error) {
		l, err := dial(ctx)
		if err != nil || d.met == nil {
			return l, err
		}
		if err := d.met(func(begin Begin, fn func(*Tx) error) error { return d.on(ctx, l, begin, fn) }); err != nil {
			l.close()
			return nil, err
		}
		return l, nil
	}
}

// on is Within on a connection that nobody else uses.
func (d *DB) on(ctx context.Context, l link, begin Begin, fn func(*Tx) error) error {
	if err := l.begin(ctx, d.begins[begin]); err != nil {
		return d.explain("begin", l.classify(err).mark(err))
	}
	t := &Tx{database: d, link: l}
	if begin != BeginRead {
		t.ForUpdate, t.SkipLocked = d.Dialect.ForUpdate, d.Dialect.skipLocked
	}
	return t.complete(fn, func() { _ = l.rollback() }, func(err error) error { return d.explain("commit", err) })
}

// Behind a proxy a connection outlives the server. Every transaction therefore asks which server it is
// on: a server that is started anew, or another one, has started at another time.
const askServer = "; select pg_postmaster_start_time()"

var errAnotherServer = errors.New("the proxy leads to another server now")

// onServer closes the connection when server is not the one of its transactions so far.
func (l *postgresLink) onServer(server string) error {
	if l.server == "" {
		l.server = server
	}
	if l.server == server {
		return nil
	}
	l.close()
	return errAnotherServer
}
