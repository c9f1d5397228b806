package engine

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// Alerts are the alerts of an engine under the settings; their errors lack what the builtin rules of
// redaction hide.
func (e *Engine) Alerts(settings alerts.Settings, version string, link alerts.Link) *alerts.Alerts {
	return alerts.New(e.Store, alerts.Options{Settings: settings, Version: version, Link: link, Hide: redact.Builtin().Text})
}

// alertFacts reads what the rules of alerts decide on: shared snapshots only.
func (e *Engine) alertFacts(ctx context.Context) (f outbox.AlertFacts, err error) {
	if f.Summary, err = e.Summary(ctx); err != nil {
		return f, err
	}
	if f.Publishers, err = e.Publishing.Publishers(ctx); err != nil {
		return f, err
	}
	if f.Sources, err = e.Intake.States(ctx); err != nil {
		return f, err
	}
	if f.Summary.Counts.Dead == 0 {
		return f, nil
	}
	groups, err := e.ErrorGroups(ctx)
	f.Groups = groups.Groups
	return f, err
}
