package main

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/sample"
)

// sampleCmd writes a made-up journal.
type sampleCmd struct {
	Campaigns int       `default:"40" placeholder:"N" help:"Number of campaigns."`
	Events    int       `default:"4000" placeholder:"N" help:"Number of events, over all campaigns."`
	Seed      uint64    `default:"1" placeholder:"S" help:"Random seed: the same seed gives the same journal."`
	Poison    int       `default:"0" placeholder:"K" help:"Number of campaigns with an event that cannot be applied."`
	End       time.Time `placeholder:"TIME" help:"Time of the last events, as RFC 3339. Default: the start of this day, UTC."`
}

// Run writes the journal to stdout.
func (c *sampleCmd) Run(ctx context.Context, a *app) error {
	config := sample.Config{Campaigns: c.Campaigns, Events: c.Events, Poison: c.Poison, Seed: c.Seed, End: c.End}
	if config.End.IsZero() {
		config.End = time.Now().UTC().Truncate(24 * time.Hour)
	}
	if err := config.Validate(); err != nil {
		return usagef("%v", err)
	}
	out := bufio.NewWriterSize(a.out, 1<<16)
	for e := range sample.Events(config) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := sample.Line(e)
		if err == nil {
			_, err = out.Write(line)
		}
		if err != nil {
			return fmt.Errorf("write the sample journal: %w", err)
		}
	}
	return out.Flush()
}
