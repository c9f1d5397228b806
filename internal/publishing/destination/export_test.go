package destination

import "time"

// SetClock replaces a publisher's clock, if it has one.
func SetClock(p Publisher, now func() time.Time) {
	switch p := p.(*bounded).to.(type) {
	case *webhook:
		p.client.Now = now
	case *natsPublisher:
		p.now = now
	case *kafkaPublisher:
		p.now = now
	}
}

// ReadAnswersFor sets the time limit for reading an answer of a webhook.
func ReadAnswersFor(p Publisher, limit time.Duration) {
	if w, ok := p.(*bounded).to.(*webhook); ok {
		w.client.Reading = limit
	}
}

// Connected reports whether a publisher to NATS has a connection.
func Connected(p Publisher) bool {
	conn := p.(*bounded).to.(*natsPublisher).conn
	return conn != nil && conn.IsConnected()
}
