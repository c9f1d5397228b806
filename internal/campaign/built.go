package campaign

import (
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// RowsBuilt says which versions of a projection's definition built its rows.
type RowsBuilt struct {
	// hash of the definition that built the rows; empty if several did, or it is unknown
	BuiltVersion string `json:"built_version"`
	// not all rows were built by the loaded version, as far as known
	BuiltByOtherVersion bool `json:"built_by_other_version"`
	// those that built rows, the first one first; empty if unknown. Of all campaigns together it lacks
	// the loaded version, which builds what is applied since it was loaded, until another one is
	BuiltVersions []LoadedVersion `json:"built_versions"`
	// when the loaded version was loaded last, in place of another; nil if unknown
	LoadedAt *time.Time `json:"loaded_at"`
}

// LoadedVersion is a version of a projection's definition.
type LoadedVersion struct {
	Version  string     `json:"version"`
	LoadedAt *time.Time `json:"loaded_at"` // when it was loaded last, in place of another; nil if unknown
}

// Named is the version with when it was loaded: "5b70dfd1a2c3 (loaded 2026-11-26 18:10:00 UTC)".
func (v LoadedVersion) Named() string {
	if v.LoadedAt == nil {
		return event.ShortHash(v.Version)
	}
	return event.ShortHash(v.Version) + " (loaded " + second(*v.LoadedAt) + ")"
}

// VersionLoad is a start of an instance with another version of a projection.
type VersionLoad struct {
	Projection string    `json:"projection" redact:"-"`
	Version    string    `json:"version"`
	Previous   string    `json:"previous"` // the one before it
	At         time.Time `json:"at"`
	Host       string    `json:"-"`
}

// Installed is what the databases know of a projection's versions.
type Installed struct {
	Version string    // that applies events now; empty if none does
	At      time.Time // since when
	// Built are the versions that built its rows, the first one first, perhaps without Version; empty if
	// unknown.
	Built []string
	Loads map[string]Load // of versions; those of long ago are missing
}

// Load is when a version was loaded in place of another.
type Load struct {
	First time.Time // zero if it may have been loaded earlier, too
	Last  time.Time
}

// Rows says which versions built the rows, for a process that has loaded one.
func (i Installed) Rows(loaded string) RowsBuilt {
	b := RowsBuilt{BuiltVersions: []LoadedVersion{}, LoadedAt: i.loadedAt(loaded)}
	if i.Version == "" && len(i.Built) == 0 { // not installed
		return b
	}
	for _, v := range i.Built {
		b.BuiltVersions = append(b.BuiltVersions, LoadedVersion{v, i.loadedAt(v)})
	}
	if len(i.Built) == 1 {
		b.BuiltVersion = i.Built[0]
	}
	b.BuiltByOtherVersion = loaded == "" || b.BuiltVersion != loaded
	if !b.BuiltByOtherVersion && i.Version != loaded { // another process applies with another version, or without it
		b.BuiltVersion, b.BuiltByOtherVersion = "", true
	}
	return b
}

// RowsOf is Rows for a campaign whose rows were built from a time on, and to which the last event was applied
// at another; nil if that is unknown. Versions that were replaced before or loaded later built none of them.
func (i Installed) RowsOf(loaded string, from time.Time, applied *time.Time) RowsBuilt {
	if len(i.Built) == 0 || applied == nil {
		return i.Rows(loaded)
	}
	var built []string
	for n, v := range i.Built {
		later := n > 0 && applied.Before(i.Loads[v].First)
		if !later && !i.replacedBy(v, from) {
			built = append(built, v)
		}
	}
	if i.Version != "" && !slices.Contains(built, i.Version) && !applied.Before(i.At) {
		built = append(built, i.Version)
	}
	i.Built = built
	return i.Rows(loaded)
}

// replacedBy reports whether another version was loaded between the last load of one and a time.
func (i Installed) replacedBy(version string, at time.Time) bool {
	last := i.Loads[version].Last
	for other, l := range i.Loads {
		between := func(load time.Time) bool { return load.After(last) && load.Before(at) }
		if other != version && (between(l.First) || between(l.Last)) {
			return true
		}
	}
	return false
}

func (i Installed) loadedAt(version string) *time.Time {
	if l, known := i.Loads[version]; known {
		return &l.Last
	}
	return nil
}

// Sentence says which versions built the rows of a projection and which is loaded, where they are not
// the same; empty otherwise. BuiltAdvice follows it.
func (b RowsBuilt) Sentence(projection, loaded string) string {
	if !b.BuiltByOtherVersion {
		return ""
	}
	var names []string
	for _, v := range b.BuiltVersions {
		if v.Version == loaded {
			v.LoadedAt = nil // told below
		}
		names = append(names, v.Named())
	}
	now := " Version " + event.ShortHash(loaded) + " is loaded now"
	if b.LoadedAt != nil {
		now += ", since " + second(*b.LoadedAt)
	}
	if b.BuildsSince(loaded) {
		now += ", and builds what is applied since then"
	}
	switch len(names) {
	case 0:
		return "It is not known which version built the rows of projection " + projection + ", and they may lack events: it was new to the journal, or another program made its tables." + now + "."
	case 1:
		return "Rows of projection " + projection + " were built by version " + names[0] + "." + now + "."
	}
	return "Rows of projection " + projection + " were built by versions " + event.Joined(names, " and ") + "." + now + "."
}

// BuiltAdvice is what to do about rows that another version than the loaded one built.
const BuiltAdvice = "If the loaded version is wrong, load the right file again. Then verify, and rebuild what differs."

// ReplayedWith says with which version of its definition a projection was replayed, and which ones built
// the rows that it was compared with or that readers see.
type ReplayedWith struct {
	Version string `json:"version"` // hash of the definition; empty for rows that were not replayed, or if it is unknown
	RowsBuilt
}

// Versions names both: "replayed with version ed74e2a0b1c2, rows built by version 5b70dfd1a2c3".
func (r ReplayedWith) Versions() string {
	with := "replayed with version " + event.ShortHash(r.Version)
	switch {
	case r.Version == "":
		return "not all built by the compared version" // of a run before versions were kept
	case r.BuiltByOtherVersion:
		return with + ", rows built " + r.By()
	}
	return with + ", which built the rows"
}

// Doubt says of replayed values that they may never have been there; empty where one version built the rows
// and replayed them.
func (r ReplayedWith) Doubt() string {
	if !r.BuiltByOtherVersion || r.Version == "" {
		return ""
	}
	return r.Versions() + ": a value shown here may never have been there"
}

// OutdatedWords name the versions of verifications that are outdated, and what to do: "version
// ed74e2a0b1c2 of projection revenue, which is not loaded any more; verify again with …". It continues
// "differed from".
func OutdatedWords(loaded []ProjectionInfo, outdated ...Verification) string {
	var were, now []string
	for _, v := range outdated {
		was := "version " + event.ShortHash(v.Version) + " of projection " + v.Projection
		if slices.Contains(were, was) {
			continue
		}
		were = append(were, was)
		for _, p := range loaded {
			if p.Name == v.Projection {
				now = append(now, "version "+LoadedVersion{p.Version, p.LoadedAt}.Named())
			}
		}
	}
	text := event.Joined(were, " and ") + ", which is not loaded any more"
	if len(were) > 1 {
		text = event.Joined(were, " and ") + ", which are not loaded any more"
	}
	switch len(now) {
	case 0:
		return text
	case 1:
		return text + "; verify again with the loaded " + now[0]
	}
	return text + "; verify again with the loaded versions"
}

func second(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// BuildsSince reports whether the loaded version is not among those known to have built rows of all
// campaigns together: it builds what is applied since it was loaded.
func (b RowsBuilt) BuildsSince(loaded string) bool {
	return b.BuiltByOtherVersion && loaded != "" && len(b.BuiltVersions) > 0 &&
		!slices.ContainsFunc(b.BuiltVersions, func(v LoadedVersion) bool { return v.Version == loaded })
}

// ByNow is By for all campaigns together: "by version 5b70dfd1a2c3, and since by the loaded version
// ed74e2a0b1c2".
func (b RowsBuilt) ByNow(loaded string) string {
	if b.BuildsSince(loaded) {
		return b.By() + ", and since by the loaded version " + event.ShortHash(loaded)
	}
	return b.By()
}

// By says which versions built the rows: "by versions 5b70dfd1a2c3 and ed74e2a0b1c2".
func (b RowsBuilt) By() string {
	var names []string
	for _, v := range b.BuiltVersions {
		names = append(names, event.ShortHash(v.Version))
	}
	switch {
	case !b.BuiltByOtherVersion:
		return "by the loaded version"
	case len(names) == 0:
		return "by an unknown version, or without earlier events"
	case len(names) == 1:
		return "by version " + names[0]
	}
	return "by versions " + event.Joined(names, " and ")
}
