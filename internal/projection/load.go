package projection

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

//go:embed builtin
var builtin embed.FS

var dialects = []string{"sqlite", "postgres"}

const builtinPrefix = "builtin:"

// Load loads projections for a dialect, "sqlite" or "postgres". A source is a directory, whose
// *.sql files are read in name order, or builtin:NAME. Names of projections and tables must be
// unique over all sources. Errors are *event.Refusal with event.ErrSetup; one about a file begins
// with FILE:LINE.
func Load(dialect string, sources ...string) (*Set, error) {
	if !slices.Contains(dialects, dialect) {
		return nil, event.Setup("unknown dialect %q; use %s", dialect, strings.Join(dialects, " and "))
	}
	if len(sources) == 0 {
		return nil, event.Setup("no projections are named; give a directory or %s", strings.Join(builtins(), ", "))
	}
	var files []file
	for _, source := range sources {
		read := readDirectory
		if strings.HasPrefix(source, builtinPrefix) {
			read = readBuiltin
		}
		more, err := read(source)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return build(dialect, files)
}

func build(dialect string, files []file) (*Set, error) {
	s := Empty(dialect)
	s.files = files
	for _, f := range files {
		p, err := parse(dialect, f)
		if err != nil {
			return nil, err
		}
		if err := s.add(p); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// origin is where a projection is defined: the program, or a line of its file; of 0 the file.
func (p *Projection) origin(line int) string {
	if name, ok := strings.CutPrefix(p.file, codePrefix); ok {
		return "Go projection " + name
	}
	if line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, line)
}

func (s *Set) add(p *Projection) error {
	for _, other := range s.projections {
		if other.Name == p.Name {
			return event.Setup("projection %q is defined twice, by %s and by %s; a name belongs to one projection", p.Name, other.origin(0), p.origin(0))
		}
		for _, t := range p.tables {
			for _, o := range other.tables {
				if t.name == o.name {
					return event.Setup("%s: table %q also belongs to projection %q (%s); a table belongs to one projection", p.origin(t.line), t.name, other.Name, other.origin(o.line))
				}
			}
		}
		if err := p.checkFunctions(other); err != nil {
			return err
		}
	}
	s.projections = append(s.projections, p)
	s.triggers = s.triggers || p.triggers
	s.code = s.code || p.code != nil
	for _, h := range p.handlers() {
		h.index = s.statements
		s.statements++
	}
	return nil
}

// builtins lists the built-in sets as sources.
func builtins() []string {
	entries, err := builtin.ReadDir("builtin")
	if err != nil {
		panic(err) // the directory is embedded
	}
	var names []string
	for _, e := range entries {
		names = append(names, builtinPrefix+e.Name())
	}
	return names
}

func readBuiltin(source string) ([]file, error) {
	if !slices.Contains(builtins(), source) {
		return nil, event.Setup("there is no built-in set of projections %q; use %s", source, strings.Join(builtins(), ", "))
	}
	dir, err := fs.Sub(builtin, "builtin/"+strings.TrimPrefix(source, builtinPrefix))
	if err != nil {
		return nil, err
	}
	return readFiles(dir, source)
}

func readDirectory(source string) ([]file, error) {
	info, err := os.Stat(source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, event.Setup("the projections directory %q does not exist; give a directory or %s", source, strings.Join(builtins(), ", "))
	case err != nil:
		return nil, event.Setup("cannot read the projections directory %q: %v", source, event.Cause(err))
	case !info.IsDir():
		return nil, event.Setup("%q is not a directory; name the directory that holds the .sql files", source)
	}
	return readFiles(os.DirFS(source), source)
}

// readFiles reads the *.sql files of dir in name order.
func readFiles(dir fs.FS, source string) ([]file, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, event.Setup("cannot read the projections directory %q: %v", source, event.Cause(err))
	}
	var files []file
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".sql" {
			continue
		}
		f := file{name: filepath.Join(source, e.Name())}
		content, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			return nil, event.Setup("cannot read %s: %v", f.name, event.Cause(err))
		}
		f.content = string(content)
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, event.Setup("the projections directory %q has no .sql file", source)
	}
	return files, nil
}
