package campaign

import (
	"cmp"
	"slices"
	"strings"
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
	// of the loaded version, as of built_versions; 0 if unknown
	VersionNumber int64 `json:"version_number"`
	// when the loaded version was loaded last, in place of another; nil if unknown
	LoadedAt *time.Time `json:"loaded_at"`
}

// LoadedVersion is a version of a projection's definition.
type LoadedVersion struct {
	Version  string     `json:"version"`
	Number   int64      `json:"number"`    // among the projection's versions, from 1 in the order of their first load; 0 if unknown
	LoadedAt *time.Time `json:"loaded_at"` // when it was loaded last, in place of another; nil if unknown
	Kept     bool       `json:"kept"`      // its text is kept, so that rows can be compared with it
}

// Named is the version with when it was loaded: "2 (5b70dfd1a2c3, loaded 2026-11-26 18:10:00 UTC)".
func (v LoadedVersion) Named() string {
	switch {
	case v.LoadedAt == nil:
		return v.Short()
	case v.Number == 0:
		return event.ShortHash(v.Version) + " (loaded " + event.Second(*v.LoadedAt) + ")"
	}
	return event.Number(v.Number) + " (" + event.ShortHash(v.Version) + ", loaded " + event.Second(*v.LoadedAt) + ")"
}

// Words is Named with what can be done with the version, beside the loaded one: "1 (5b70dfd1a2c3), kept".
func (v LoadedVersion) Words(loaded string) string {
	switch {
	case v.Version == loaded:
		return v.Named() + ", loaded now"
	case v.Kept:
		return v.Named() + ", kept"
	}
	return v.Named() + ", text not kept"
}

// Short is the version with its number: "2 (5b70dfd1a2c3)".
func (v LoadedVersion) Short() string {
	if v.Number == 0 {
		return event.ShortHash(v.Version)
	}
	return event.Number(v.Number) + " (" + event.ShortHash(v.Version) + ")"
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
	Number int64     // of the version, as of LoadedVersion
	Kept   bool      // likewise
	First  time.Time // zero if it may have been loaded earlier, too
	Last   time.Time
}

// Rows says which versions built the rows, for a process that has loaded one.
func (i Installed) Rows(loaded string) RowsBuilt {
	if i.Version == "" && len(i.Built) == 0 { // not installed
		return i.rowsNow(loaded)
	}
	b := i.rowsOf(i.Built, loaded)
	if !b.BuiltByOtherVersion && i.Version != loaded { // another process applies with another version, or without it
		b.BuiltVersion, b.BuiltByOtherVersion = "", true
	}
	return b
}

func (i Installed) rowsNow(loaded string) RowsBuilt {
	v := i.Named(loaded)
	return RowsBuilt{BuiltVersions: []LoadedVersion{}, VersionNumber: v.Number, LoadedAt: v.LoadedAt}
}

// Deployed says which versions of projections were loaded last, in place of others, since a time: the latest first.
func (s Summary) Deployed(since time.Time) (all []string) {
	var loads []VersionLoad
	for name, i := range s.Installed {
		for version, l := range i.Loads {
			if l.Last.After(since) && len(i.Loads) > 1 {
				loads = append(loads, VersionLoad{Projection: name, Version: version, At: l.Last})
			}
		}
	}
	slices.SortFunc(loads, func(a, b VersionLoad) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Projection, b.Projection))
	})
	for _, l := range loads {
		all = append(all, "version "+s.Installed[l.Projection].Named(l.Version).Named()+" of projection "+l.Projection)
	}
	return all
}

// rowsOf says that these versions built the rows.
func (i Installed) rowsOf(built []string, loaded string) RowsBuilt {
	b := i.rowsNow(loaded)
	for _, v := range built {
		b.BuiltVersions = append(b.BuiltVersions, i.Named(v))
	}
	if len(built) == 1 {
		b.BuiltVersion = built[0]
	}
	b.BuiltByOtherVersion = loaded == "" || b.BuiltVersion != loaded
	return b
}

// By names versions that built rows, as RowsBuilt.By does.
func (i Installed) By(versions []string, loaded string) string {
	return i.rowsOf(versions, loaded).By()
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

// Named is a version with what is known of its loads.
func (i Installed) Named(version string) LoadedVersion {
	v := LoadedVersion{Version: version}
	if l, known := i.Loads[version]; known {
		v.Number, v.LoadedAt, v.Kept = l.Number, &l.Last, l.Kept
	}
	return v
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
	now := " Version " + b.Now(loaded).Short() + " is loaded now"
	if b.LoadedAt != nil {
		now += ", since " + event.Second(*b.LoadedAt)
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

// Now is the loaded version.
func (b RowsBuilt) Now(loaded string) LoadedVersion {
	return LoadedVersion{Version: loaded, Number: b.VersionNumber, LoadedAt: b.LoadedAt}
}

// BuiltAdvice is what to do about rows that another version than the loaded one built.
const BuiltAdvice = "If the loaded version is wrong, load the right file again. Then verify, and rebuild what differs."

// ReplayedWith says with which version of its definition a projection was replayed, and which ones built
// the rows that it was compared with or that readers see.
type ReplayedWith struct {
	Version string `json:"version"` // hash of the definition; empty for rows that were not replayed, or if it is unknown
	RowsBuilt
	// each event was replayed with the version that made the rows of it, which may not be version
	AsBuilt bool        `json:"as_built"`
	Built   BuiltRanges `json:"-"`
}

// Versions names both: "replayed with version ed74e2a0b1c2, rows built by version 5b70dfd1a2c3".
func (r ReplayedWith) Versions() string {
	with := "replayed with version " + event.ShortHash(r.Version)
	switch {
	case r.AsBuilt && r.BuiltByOtherVersion:
		return "replayed with what built the rows, version " + r.Built.Words()
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
	if !r.BuiltByOtherVersion || r.Version == "" || r.AsBuilt {
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
				now = append(now, "version "+p.Now(p.Version).Named())
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
		return b.By() + ", and since by the loaded version " + b.Now(loaded).Short()
	}
	return b.By()
}

// By says which versions built the rows: "by versions 5b70dfd1a2c3 and ed74e2a0b1c2".
func (b RowsBuilt) By() string {
	var names []string
	for _, v := range b.BuiltVersions {
		names = append(names, v.Short())
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
