package handlers

import (
	"cmp"
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// subscriptionParam returns the publisher named in an address.
func subscriptionParam(r *http.Request) (name operator.SubscriptionName, err error) {
	if name.Topic, err = param(r, "topic"); err == nil {
		name.Publisher, err = param(r, "publisher")
	}
	return name, err
}

// apiSeekPublisher moves a publisher's position. With dry_run it only answers what that would do,
// which a read-only server does too.
func (s *server) apiSeekPublisher(w http.ResponseWriter, r *http.Request) error {
	name, err := subscriptionParam(r)
	if err != nil {
		return err
	}
	var body subscription.SeekRequest
	err = decode(r, &body)
	if body.DryRun {
		onlyAsks(r)
	}
	if err != nil {
		return err
	}
	var seek operator.Seek
	if body.DryRun {
		seek, err = s.previewSeek(r.Context(), name, body)
	} else if err = cmp.Or(needs(r, operator.ActionPublisherSeek.Role()), s.refuseReadOnly()); err == nil {
		seek, err = s.seek(r, "api", name, body)
	}
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, seek)
}

// testPublisher sends a made-up event to a publisher's destination.
func (s *server) testPublisher(ctx context.Context, name operator.SubscriptionName) (subscription.TestDelivery, error) {
	if s.TestPublisher == nil {
		return subscription.TestDelivery{}, event.Conflict("publisher %s is not in this server's configuration; send the test from a server that has it", name)
	}
	return s.TestPublisher(ctx, name)
}
