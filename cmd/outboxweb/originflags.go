package main

import "github.com/outboxweb/outboxweb/internal/handlers"

// originFlags configure the origins at which browsers reach the pages, and which may frame them.
type originFlags struct {
	PublicOrigin   string   `placeholder:"ORIGIN" help:"The origin at which browsers reach the dashboard, such as https://ops.example. Its pages may make changes, its host is allowed, and curl commands use it."`
	FrameAncestors []string `placeholder:"ORIGIN" help:"An origin that may embed the dashboard in a frame: scheme://host[:port], or 'self' in single quotes. Repeatable; none by default."`
}

// check validates the origins and normalizes them as browsers do.
func (f *originFlags) check() error {
	if f.PublicOrigin != "" {
		at, err := handlers.Origin(f.PublicOrigin)
		if err != nil {
			return usagef("--public-origin: %v", err)
		}
		f.PublicOrigin = at
	}
	var err error
	if f.FrameAncestors, err = handlers.FrameAncestors(f.FrameAncestors); err != nil {
		return usagef("--frame-ancestors: %v", err)
	}
	return nil
}
