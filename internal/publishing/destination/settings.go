package destination

import (
	"cmp"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Settings are how a subscription reads the journal and calls its destination. Zero fields have the
// values of DefaultSettings.
type Settings struct {
	PollInterval time.Duration
	Idle         subscription.IdleBackoff // between polls that find nothing
	BatchSize    int                      // maximum events per call of Publish
	Timeout      time.Duration            // of one call of the destination
	Pause        event.Retry              // the wait after errors in a row: from Base, doubled with each, to Max
	MaxErrors    int                      // errors in a row after which the subscription is failed
	FailedRetry  time.Duration            // retry interval of a failed subscription
}

// Defaults of a subscription.
const (
	DefaultPollInterval = time.Second
	DefaultBatchSize    = 100
	DefaultTimeout      = 10 * time.Second
	DefaultRetryBase    = time.Second
	DefaultRetryMax     = time.Minute
	DefaultMaxErrors    = 10
	DefaultFailedRetry  = 5 * time.Minute
)

// DefaultSettings returns the settings of a publisher that configures none.
func DefaultSettings() Settings { return Settings{}.or(Settings{}) }

// or returns the settings with defaults for zero fields, from base and then from the constants.
func (s Settings) or(base Settings) Settings {
	return Settings{
		PollInterval: cmp.Or(s.PollInterval, base.PollInterval, DefaultPollInterval),
		Idle: subscription.IdleBackoff{
			Off:     s.Idle.Off || s.Idle == subscription.IdleBackoff{} && base.Idle.Off,
			After:   cmp.Or(s.Idle.After, base.Idle.After, subscription.DefaultIdleBackoff.After),
			Factor:  cmp.Or(s.Idle.Factor, base.Idle.Factor, subscription.DefaultIdleBackoff.Factor),
			Longest: cmp.Or(s.Idle.Longest, base.Idle.Longest, subscription.DefaultIdleBackoff.Longest),
		},
		BatchSize: cmp.Or(s.BatchSize, base.BatchSize, DefaultBatchSize),
		Timeout:   cmp.Or(s.Timeout, base.Timeout, DefaultTimeout),
		Pause: event.Retry{
			Base: cmp.Or(s.Pause.Base, base.Pause.Base, DefaultRetryBase),
			Max:  cmp.Or(s.Pause.Max, base.Pause.Max, DefaultRetryMax),
		},
		MaxErrors:   cmp.Or(s.MaxErrors, base.MaxErrors, DefaultMaxErrors),
		FailedRetry: cmp.Or(s.FailedRetry, base.FailedRetry, DefaultFailedRetry),
	}
}

// check refuses settings that the configuration file could not have.
func (s Settings) check() error {
	for _, one := range []struct {
		name            string
		is, least, most float64
	}{
		{"the poll interval", s.PollInterval.Seconds(), outbound.LeastPause.Seconds(), longestPause.Seconds()},
		{"the longest idle wait", s.Idle.Longest.Seconds(), outbound.LeastPause.Seconds(), longestPause.Seconds()},
		{"the empty polls before idle waits grow", float64(s.Idle.After), 1, mostIdle},
		{"the factor of idle waits", s.Idle.Factor, 1, mostFactor},
		{"the batch size", float64(s.BatchSize), 1, largestBatch},
		{"the timeout", s.Timeout.Seconds(), outbound.LeastPause.Seconds(), longestCall.Seconds()},
		{"the first wait after an error", s.Pause.Base.Seconds(), outbound.LeastPause.Seconds(), s.Pause.Max.Seconds()},
		{"the longest wait after an error", s.Pause.Max.Seconds(), outbound.LeastPause.Seconds(), longestPause.Seconds()},
		{"the errors in a row after which it is failed", float64(s.MaxErrors), 1, mostErrors},
		{"the retry interval once failed", s.FailedRetry.Seconds(), outbound.LeastPause.Seconds(), longestPause.Seconds()},
	} {
		if !(one.is >= one.least && one.is <= one.most) {
			return event.Setup("%s must be from %v to %v (durations in seconds), not %v", one.name, one.least, one.most, one.is)
		}
	}
	return nil
}

// view returns the settings as pages and the API show them.
func (s Settings) view() subscription.PublisherSettings {
	v := subscription.PublisherSettings{
		BatchSize: s.BatchSize, PollSeconds: s.PollInterval.Seconds(), TimeoutSeconds: s.Timeout.Seconds(),
		RetryBaseSeconds: s.Pause.Base.Seconds(), RetryMaxSeconds: s.Pause.Max.Seconds(), MaxErrors: s.MaxErrors, FailedRetrySeconds: s.FailedRetry.Seconds(),
	}
	if !s.Idle.Off {
		v.IdleBackoff, v.IdleAfter, v.IdleFactor, v.IdleLongestSeconds = true, s.Idle.After, s.Idle.Factor, max(s.Idle.Longest, s.PollInterval).Seconds()
	}
	return v
}

// settingKeys are the configuration keys of Settings.
var settingKeys = []string{"poll_interval", "idle_backoff", "idle_after", "idle_factor", "idle_longest", "batch_size", "timeout", "retry_base", "retry_max", "max_errors", "failed_retry"}

// settings reads the keys of Settings beside each other; those that are absent are as in base.
func (r *reader) settings(at outbound.Entry, fields map[string]outbound.Entry, base Settings) Settings {
	s := Settings{
		PollInterval: r.Pause(fields["poll_interval"], base.PollInterval, longestPause),
		Idle: subscription.IdleBackoff{
			After:   int(r.Number(fields["idle_after"], int64(base.Idle.After), 1, mostIdle)),
			Factor:  r.Decimal(fields["idle_factor"], base.Idle.Factor, 1, mostFactor),
			Longest: r.Pause(fields["idle_longest"], base.Idle.Longest, longestPause),
			Off:     base.Idle.Off,
		},
		BatchSize:   int(r.Number(fields["batch_size"], int64(base.BatchSize), 1, largestBatch)),
		Timeout:     r.Pause(fields["timeout"], base.Timeout, longestCall),
		MaxErrors:   int(r.Number(fields["max_errors"], int64(base.MaxErrors), 1, mostErrors)),
		FailedRetry: r.Pause(fields["failed_retry"], base.FailedRetry, longestPause),
		Pause:       event.Retry{Base: r.Pause(fields["retry_base"], base.Pause.Base, longestPause), Max: r.Pause(fields["retry_max"], base.Pause.Max, longestPause)},
	}
	if on, given := fields["idle_backoff"]; given {
		s.Idle.Off = !r.Flag(on)
	}
	if r.Err == nil && s.Pause.Max < s.Pause.Base {
		r.Fail(at.Key, at.Path, "retry_max, %s, must not be less than retry_base, %s", s.Pause.Max, s.Pause.Base)
	}
	return s
}
