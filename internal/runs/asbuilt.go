package runs

import (
	"context"
	"errors"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
)

// stretch is the events of a replay, up to one, that a set other than the loaded one applies.
type stretch struct {
	until int64
	set   *projection.Set
	first int // index of its first statement among those of all sets
}

// applying is the set that applies an event, and the index of its first statement.
func (f *Replayer) applying(seq int64) (*projection.Set, int) {
	for _, s := range f.stretches {
		if seq <= s.until {
			return s.set, s.first
		}
	}
	return f.set, 0
}

// AsBuilt has each event of a campaign replayed with the versions of the projections that made the live rows of
// it, where they are known and kept and have the schema of the loaded ones, instead of these. It returns what it
// replays with, by projection.
func (r *Recording) AsBuilt(ctx context.Context) (map[string]campaign.ReplayedWith, error) {
	f := r.replayer
	built, err := Built(ctx, f.store, f.set, r.expected.campaign)
	if err != nil {
		return nil, err
	}
	kept := &keptVersions{Replayer: f, files: map[string]*campaign.RehearsalFile{}, sets: map[string]stretch{}}
	var ends []int64
	for name, b := range built {
		if b.BuiltByOtherVersion {
			b.AsBuilt, err = kept.all(ctx, name, b.Built)
		} else {
			b.AsBuilt = true
		}
		if err != nil {
			return nil, err
		}
		if built[name] = b; b.AsBuilt {
			for _, one := range b.Built {
				ends = append(ends, one.LastSeq)
			}
		}
	}
	slices.Sort(ends)
	for _, end := range slices.Compact(ends) {
		if err := r.addStretch(ctx, kept, built, end); err != nil {
			return nil, err
		}
	}
	return built, nil
}

// addStretch adds the events up to end, which come after the last stretch.
func (r *Recording) addStretch(ctx context.Context, kept *keptVersions, built map[string]campaign.ReplayedWith, end int64) error {
	f := r.replayer
	var files []campaign.RehearsalFile
	versions := ""
	for _, p := range f.set.Projections() {
		b := built[p.Name]
		if version := b.Built.At(end).Version; b.AsBuilt && version != "" && version != p.Version {
			key := p.Name + " " + version
			files, versions = append(files, *kept.files[key]), versions+key+"\n"
		}
	}
	s, made := kept.sets[versions]
	switch {
	case made:
	case len(files) == 0:
		s.set = f.set
	default:
		var err error
		if s.set, _, err = f.set.Changed(ctx, files); err != nil {
			return err
		}
		s.first = len(r.Statements)
		r.Statements = append(r.Statements, s.set.Statements()...)
	}
	kept.sets[versions] = s
	s.until = end
	f.stretches = append(f.stretches, s)
	return nil
}

// keptVersions are the texts of other versions than the loaded ones, by projection and version; nil where one
// cannot be replayed in the tables of the loaded one.
type keptVersions struct {
	*Replayer
	files map[string]*campaign.RehearsalFile
	sets  map[string]stretch // those made of them, by their versions: two processes may have taken turns
}

// all reads the versions of a projection's ranges, and reports whether all can be replayed.
func (k *keptVersions) all(ctx context.Context, name string, ranges campaign.BuiltRanges) (bool, error) {
	versions, known := ranges.Versions()
	for _, version := range versions {
		if version == k.set.Named(name).Version || !known {
			continue
		}
		key := name + " " + version
		d, err := k.store.KeptDefinition(ctx, name, version)
		if err == nil {
			var other *projection.Set
			if other, _, err = k.set.Changed(ctx, []campaign.RehearsalFile{d.File}); err == nil && other.Named(name).SameSchema(k.set.Named(name)) {
				k.files[key] = &d.File
			}
		}
		if err != nil && !errors.Is(err, event.ErrNotFound) && !errors.Is(err, event.ErrSetup) {
			return false, err
		}
		known = known && k.files[key] != nil
	}
	return known, nil
}
