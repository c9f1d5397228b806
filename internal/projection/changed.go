package projection

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
)

// File is the text of a projection's file.
type File struct {
	Projection string `json:"projection" redact:"-"`
	Name       string `json:"name" redact:"-"` // of the file, without its directory
	Text       string `json:"text" redact:"-"`
}

// Files lists the files of the set in load order. A projection written in Go has none.
func (s *Set) Files() []File {
	var files []File
	for i, f := range s.files {
		if f.code == nil {
			files = append(files, File{s.projections[i].Name, filepath.Base(f.name), f.content})
		}
	}
	return files
}

// Changed returns the set with other texts of some of its files, which replace those of the
// projections that they define, and the names of these. It checks all files as Check does. A file
// that is equal to the loaded one is left out, unless all are: then their projections are named. One of an
// unknown projection is an event.ErrSetup
// refusal, as is any fault that Check finds. Errors name the files as they are loaded.
func (s *Set) Changed(ctx context.Context, texts []campaign.RehearsalFile) (changed *Set, names []string, err error) {
	files := slices.Clone(s.files)
	var same []string
	for _, one := range texts {
		p, err := parse(s.dialect, file{name: one.Name, content: one.Text})
		if err != nil {
			return nil, nil, err
		}
		i := slices.IndexFunc(s.projections, func(q *Projection) bool { return q.Name == p.Name })
		switch {
		case i < 0:
			return nil, nil, event.Setup("%s: projection %q is not loaded, and a changed file replaces that of a loaded projection; name the replaced file in --projections, too", one.Name, p.Name)
		case files[i].code != nil:
			return nil, nil, event.Setup("%s: projection %q is written in Go; a file cannot replace it", one.Name, p.Name)
		case slices.Contains(names, p.Name):
			return nil, nil, event.Setup("%s: projection %q is defined by another of the files too", one.Name, p.Name)
		case files[i].content == one.Text:
			same = append(same, p.Name)
			continue
		}
		files[i].content = one.Text
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		names = same
	}
	// Both dialects are checked, as Check does, whichever this set is for.
	all, err := build("postgres", files)
	if err != nil {
		return nil, nil, err
	}
	lite, err := all.checked(ctx)
	if err != nil {
		return nil, nil, err
	}
	if s.dialect == "sqlite" {
		all = lite
	}
	return all, names, nil
}

// SameSchema reports whether the schemas of both versions of a projection are the same, apart from
// white space and comments.
func (p *Projection) SameSchema(q *Projection) bool {
	return slices.EqualFunc(p.SchemaStatements, q.SchemaStatements, func(a, b Statement) bool {
		return slices.EqualFunc(a.tokens, b.tokens, func(x, y token) bool { return x.text == y.text })
	})
}

// UniqueKey is a key of a table: no two rows may have the same values in it.
type UniqueKey struct {
	Table   string
	Columns []string
	// Vague says that the columns alone do not tell which rows conflict: the key is over an expression,
	// or excludes by another operator than equality.
	Vague bool
}

// UniqueKeys lists the keys of the projection's tables.
func (p *Projection) UniqueKeys() []UniqueKey {
	var all []UniqueKey
	for _, t := range p.tables {
		for _, names := range t.unique {
			all = append(all, UniqueKey{Table: t.name, Columns: names, Vague: len(names) == 0 || !t.hasAll(names)})
		}
	}
	return all
}

// Shared lists the tables that have a key without the campaign: whether a row fits into them
// depends on rows of other campaigns.
func (p *Projection) Shared() []string {
	var shared []string
	for _, key := range p.UniqueKeys() {
		drawn := len(key.Columns) == 1 && slices.Contains(p.Drawn()[key.Table], key.Columns[0])
		if !drawn && !slices.Contains(key.Columns, "campaign_id") && !slices.Contains(shared, key.Table) {
			shared = append(shared, key.Table)
		}
	}
	return shared
}
