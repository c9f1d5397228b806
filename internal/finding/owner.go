package finding

import (
	"strings"
	"time"
)

// Owner is who is on a finding, or on all of a kind.
type Owner struct {
	Kind    Kind      `json:"-"`
	Subject string    `json:"-" redact:"-"` // empty for all of the kind
	By      string    `json:"by"`
	Note    string    `json:"note"` // empty without one
	Since   time.Time `json:"since"`
}

// OwnedFor is how long a finding has an owner at most.
const OwnedFor = 24 * time.Hour

// Of reports whether the owner is on a finding.
func (o *Owner) Of(f Finding) bool {
	return o.Kind == f.Kind && (o.Subject == "" || o.Subject == f.Subject)
}

// Says who is on it, since when; empty if nobody is.
func (o *Owner) Says() string {
	if o == nil {
		return ""
	}
	says := o.By + " is on it since " + o.Since.UTC().Format("15:04 UTC")
	if o.Note != "" {
		says += ": " + o.Note
	}
	return says
}

// Taken is a finding that was taken, or given back.
type Taken struct {
	Kind    Kind   `json:"kind"`
	Subject string `json:"subject" redact:"-"` // empty for all of the kind
	Owner   *Owner `json:"owner"`              // nil if it was given back
	From    string `json:"from"`               // who was on it before, if it was another; empty otherwise
}

// Says what was done.
func (t Taken) Says() string {
	what := strings.TrimSpace("finding " + string(t.Kind) + " " + t.Subject)
	if t.From != "" {
		what += ", which " + t.From + " was on"
	}
	if t.Owner == nil {
		return "gave back " + what
	}
	return "took " + what
}
