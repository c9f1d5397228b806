package projection

import (
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Needs lists, in load order, the named projections and those whose tables their statements
// reference, directly or indirectly: replaying without those would give different rows. No names
// mean all. An unknown name is event.ErrNotFound.
func (s *Set) Needs(names ...string) ([]string, error) {
	if len(names) == 0 {
		return s.names(), nil
	}
	needed := map[string]bool{}
	for _, name := range names {
		p := s.Named(name)
		if p == nil {
			return nil, event.NotFound("there is no projection %q", name)
		}
		s.follow(p, needed)
	}
	return slices.DeleteFunc(s.names(), func(name string) bool { return !needed[name] }), nil
}

// Others lists the projections that are not among the names, in the form that Apply takes.
func (s *Set) Others(names []string) map[string]bool {
	others := map[string]bool{}
	for _, p := range s.projections {
		if !slices.Contains(names, p.Name) {
			others[p.Name] = true
		}
	}
	return others
}

func (s *Set) names() []string {
	names := make([]string, len(s.projections))
	for i, p := range s.projections {
		names[i] = p.Name
	}
	return names
}

// Named returns the projection of that name, or nil.
func (s *Set) Named(name string) *Projection {
	return find(s.projections, func(p *Projection) bool { return p.Name == name })
}

// find returns the first for which is holds, or nil.
func find[T any](all []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

func (s *Set) follow(p *Projection, needed map[string]bool) {
	if needed[p.Name] {
		return
	}
	needed[p.Name] = true
	for _, other := range s.projections {
		if !needed[other.Name] && p.reads(other) {
			s.follow(other, needed)
		}
	}
}

// reads reports whether a statement of p references a table of the other.
func (p *Projection) reads(other *Projection) bool {
	named := func(st Statement) bool { return st.names(other.Tables...) }
	for _, h := range p.handlers() {
		if named(h.Statement) {
			return true
		}
	}
	return slices.ContainsFunc(p.SchemaStatements, named) ||
		slices.ContainsFunc(p.digests, func(d *digest) bool { return named(d.Statement) })
}

// names reports whether a statement names a table or column of some.
func (s Statement) names(some ...string) bool {
	return slices.ContainsFunc(s.tokens, func(t token) bool { return t.name() != "" && slices.Contains(some, t.name()) })
}
