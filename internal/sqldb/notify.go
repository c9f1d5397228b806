package sqldb

import "context"

// Notifies reports whether processes can notify each other through the server.
func (d *DB) Notifies() bool { return d.url != nil && !d.Proxied }

// Listen calls listening once the subscription is active, and heed for every notification on a
// channel, until the connection is lost or ctx ends.
func (d *DB) Listen(ctx context.Context, channel string, listening func(), heed func(payload string)) error {
	l, err := d.dialPostgres(ctx, "", d.mayRead)
	if err != nil {
		return err
	}
	defer l.close()
	if _, err := l.conn.Exec(ctx, "listen "+channel); err != nil {
		return err
	}
	listening()
	for {
		hint, err := l.conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		heed(hint.Payload)
	}
}
