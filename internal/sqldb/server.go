package sqldb

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/database"
)

// server is what a server says about itself.
type server struct {
	encoding string
	standby  bool
	readOnly bool   // transactions only read unless they say otherwise
	unsafe   bool   // a crash of its machine may lose what it has committed
	started  string // when it did
}

// selectServer reads a server, in the order of its fields.
const selectServer = `
select current_setting('server_encoding'), pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', current_setting('fsync') = 'off',
  cast(pg_postmaster_start_time() as text)`

// readServer is a row of selectServer, as the texts that the simple protocol answers.
func readServer(row [][]byte) server {
	on := func(text []byte) bool { return string(text) == "t" }
	return server{string(row[0]), on(row[1]), on(row[2]), on(row[3]), string(row[4])}
}

// unfit says why a server cannot be used for the database, and the way out; empty when it can.
func (s server) unfit(d *DB) string {
	switch {
	case s.encoding != "UTF8":
		return fmt.Sprintf("The %s database has the encoding %s, which cannot hold every event; create one with createdb --encoding=UTF8 --template=template0 NAME, and use that.", d.Name, s.encoding)
	case s.standby:
		return fmt.Sprintf("The server of the %s database is a standby, which takes no writes and may be behind; let the URL name the primary, or every server and target_session_attrs=read-write.", d.Name)
	case s.readOnly:
		return fmt.Sprintf("The server of the %s database takes no writes, since default_transaction_read_only is on; end what it is on for, or reset it: in a session that begins with set default_transaction_read_only = off, run alter role %s reset default_transaction_read_only, likewise alter database and alter system with select pg_reload_conf().", d.Name, d.url.config.User)
	}
	return ""
}

// mayWrite refuses a server to a connection that writes, and keeps the database's fault: a server may be
// another one than that of the connection before.
func (d *DB) mayWrite(s server) error {
	says := s.unfit(d)
	if says == "" {
		d.ClearFault(database.FaultServer)
		return nil
	}
	d.SetFault(database.FaultServer, says)
	return errors.New(says)
}

// mayRead is mayWrite for a connection that only reads.
func (d *DB) mayRead(s server) error {
	if s.encoding == "UTF8" && !s.standby && s.readOnly {
		return nil
	}
	return d.mayWrite(s)
}

// dialPostgresWriter opens a connection that writes. The first one to a server, at the start and after
// a restart or a fail-over, raises the sequences that are behind.
func (d *DB) dialPostgresWriter(ctx context.Context, settings string) (link, error) {
	var found server
	l, err := d.dialPostgres(ctx, settings, func(s server) error {
		found = s
		return d.mayWrite(s)
	})
	if err != nil || d.examined.Load() == found.started {
		return l, err
	}
	behind := false
	err = d.on(ctx, l, BeginWrite, func(t *Tx) error {
		found, err := t.BehindIdentities()
		behind = len(found) > 0
		return err
	})
	if behind {
		err = d.on(ctx, l, BeginAppendAlone, func(t *Tx) error {
			_, err := t.raiseIdentities()
			return err
		})
	}
	if err != nil {
		l.close()
		return nil, err
	}
	d.examined.Store(found.started)
	return l, nil
}

// Examine connects for writing, which checks the server, and logs how the server is run where an
// operator should know.
func (d *DB) Examine(ctx context.Context) error {
	if d.url == nil {
		return nil
	}
	if d.server.unsafe {
		d.config.Log.Warn("the server runs with fsync=off: a crash of its machine loses events that were acknowledged, or damages the database", "database", d.Name)
	}
	return d.Write(ctx, func(*Tx) error { return nil })
}
