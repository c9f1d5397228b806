package campaign

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// BuiltRange is consecutive events of a campaign that one version of a projection made its rows of.
type BuiltRange struct {
	FirstSeq int64 `json:"first_seq"`
	LastSeq  int64 `json:"last_seq"`
	LoadedVersion
	// when a worker applied them; nil for the events of a replay or a rebuild, or if unknown
	BeganAt *time.Time `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"`
}

// BuiltRanges are in order of seq.
type BuiltRanges []BuiltRange

// BuiltFilter selects campaigns by a version that made rows of them.
type BuiltFilter struct {
	Projection string `json:"-" validate:"-" kong:"-"`
	Version    string `json:"-" validate:"-" kong:"-"`           // whole
	Cursor     string `json:"cursor" validate:"cursor" kong:"-"` // next_cursor or prev_cursor of another page
	Limit      int    `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage" kong:"-"`
}

// BuiltCampaign is the events of a campaign that one version of a projection made its rows of.
type BuiltCampaign struct {
	CampaignID string      `json:"campaign_id" redact:"-"`
	Ranges     BuiltRanges `json:"ranges"`
}

// With is the ranges once the events of another one were applied anew.
func (all BuiltRanges) With(r BuiltRange) (with BuiltRanges) {
	if n := len(all); n == 0 || all[n-1].LastSeq < r.FirstSeq {
		return all.join(r)
	}
	added := false
	for _, b := range all {
		before, after := b, b
		before.LastSeq, after.FirstSeq = min(b.LastSeq, r.FirstSeq-1), max(b.FirstSeq, r.LastSeq+1)
		with = with.join(before)
		if !added && b.LastSeq >= r.FirstSeq {
			with, added = with.join(r), true
		}
		with = with.join(after)
	}
	return with
}

// join appends a range that is behind the others, unless it is empty.
func (all BuiltRanges) join(r BuiltRange) BuiltRanges {
	if r.FirstSeq > r.LastSeq {
		return all
	}
	if n := len(all); n > 0 && all[n-1].Version == r.Version && all[n-1].LastSeq+1 == r.FirstSeq {
		last := &all[n-1]
		if last.LastSeq = r.LastSeq; r.EndedAt != nil {
			last.EndedAt = r.EndedAt
		}
		if last.BeganAt == nil {
			last.BeganAt = r.BeganAt
		}
		return all
	}
	return append(all, r)
}

// upTo is the ranges of the events up to seq; those that no range has were made by a version, which may be empty.
func (all BuiltRanges) upTo(seq int64, otherwise string) (whole BuiltRanges) {
	next := int64(1)
	for _, r := range all {
		if r.LastSeq = min(r.LastSeq, seq); r.Version == "" {
			r.Version = otherwise
		}
		whole = whole.join(BuiltRange{FirstSeq: next, LastSeq: min(r.FirstSeq-1, seq), LoadedVersion: LoadedVersion{Version: otherwise}})
		whole, next = whole.join(r), r.LastSeq+1
	}
	return whole.join(BuiltRange{FirstSeq: next, LastSeq: seq, LoadedVersion: LoadedVersion{Version: otherwise}})
}

// Versions are those of the ranges, each once, and whether all are known.
func (all BuiltRanges) Versions() (versions []string, known bool) {
	known = len(all) > 0
	for _, r := range all {
		if known = known && r.Version != ""; r.Version != "" && !slices.Contains(versions, r.Version) {
			versions = append(versions, r.Version)
		}
	}
	return versions, known
}

// Events names the events: "1 to 40, 57".
func (all BuiltRanges) Events() string {
	var parts []string
	for _, r := range all {
		part := event.Number(r.FirstSeq)
		if r.LastSeq > r.FirstSeq {
			part += " to " + event.Number(r.LastSeq)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// SameUpTo reports whether the events up to seq are of the same versions; those that have no range are of one
// version.
func (all BuiltRanges) SameUpTo(seq int64, with BuiltRanges, otherwise string) bool {
	return slices.EqualFunc(all.upTo(seq, otherwise), with.upTo(seq, otherwise), func(a, b BuiltRange) bool {
		return a.LastSeq == b.LastSeq && a.Version == b.Version
	})
}

// Of are the ranges of a version.
func (all BuiltRanges) Of(version string) BuiltRanges {
	return slices.DeleteFunc(slices.Clone(all), func(r BuiltRange) bool { return r.Version != version })
}

// At is the range of an event; zero if none has it.
func (all BuiltRanges) At(seq int64) BuiltRange {
	for _, r := range all {
		if r.FirstSeq <= seq && seq <= r.LastSeq {
			return r
		}
	}
	return BuiltRange{}
}

// SetBuilt completes which versions built a cursor's rows with what is known of its campaign: the ranges that
// workers applied, and those that runs replayed since then.
func (c *Cursor) SetBuilt(i Installed, applied BuiltRanges) {
	for _, r := range c.Replayed {
		applied = applied.With(r)
	}
	c.Built = applied.upTo(c.AppliedSeq, c.BuiltVersion)
	for n := range c.Built {
		c.Built[n].LoadedVersion = i.Named(c.Built[n].Version)
	}
	if versions, known := c.Built.Versions(); known {
		c.RowsBuilt = i.rowsOf(versions, c.Version)
	}
}

// ParseReplayed parses what the projections database keeps of the ranges that runs replayed: "AFTER SEQ VERSION"
// for each.
func ParseReplayed(text string) (all []BuiltRange) {
	words := strings.Fields(text)
	for ; len(words) >= 3; words = words[3:] {
		after, err := strconv.ParseInt(words[0], 10, 64)
		last, err2 := strconv.ParseInt(words[1], 10, 64)
		if err == nil && err2 == nil {
			all = append(all, BuiltRange{FirstSeq: after + 1, LastSeq: last, LoadedVersion: LoadedVersion{Version: words[2]}})
		}
	}
	return all
}

// ReplayedText is one range for ParseReplayed.
func ReplayedText(after, last int64, version string) string {
	return fmt.Sprintf("%d %d %s", after, last, version)
}

// SetOf is a digest of the versions of projections that a process has loaded together; empty without any.
func SetOf(loaded []Definition) string {
	if len(loaded) == 0 {
		return ""
	}
	var versions []string
	for _, d := range loaded {
		versions = append(versions, d.Projection+" "+d.Version)
	}
	slices.Sort(versions)
	digest := sha256.Sum256([]byte(strings.Join(versions, "\n")))
	return hex.EncodeToString(digest[:6])
}

// Words names the versions with their events: "version 1 (5b70dfd1a2c3) up to event 40 and version 2
// (ed74e2a0b1c2) from there on".
func (all BuiltRanges) Words() string {
	var parts []string
	for n, r := range all {
		switch {
		case len(all) == 1:
			parts = append(parts, r.Named())
		case n == len(all)-1:
			parts = append(parts, r.Named()+" from there on")
		default:
			parts = append(parts, r.Named()+" up to event "+event.Number(r.LastSeq))
		}
	}
	return event.Joined(parts, " and ")
}
