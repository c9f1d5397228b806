package handlers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// sources is what the Go source of this module adds to reflection: comments, and the constants of a
// type.
type sources struct {
	t        testing.TB
	packages map[string]*sourcePackage // by import path
}

type sourcePackage struct {
	types     map[string]*ast.TypeSpec
	comments  map[string]string   // by type
	constants map[string][]string // texts by type, in the order of the source, without the empty one
}

const modulePath = "github.com/outboxweb/outboxweb/"

func (s *sources) of(path string) *sourcePackage {
	if p := s.packages[path]; p != nil {
		return p
	}
	p := &sourcePackage{types: map[string]*ast.TypeSpec{}, comments: map[string]string{}, constants: map[string][]string{}}
	s.packages[path] = p
	if !strings.HasPrefix(path, modulePath) {
		return p
	}
	files := must.Get(filepath.Glob(filepath.Join("..", "..", strings.TrimPrefix(path, modulePath), "*.go"))).Or(s.t)
	for _, name := range files {
		text := must.Get(os.ReadFile(name)).Or(s.t)
		file := must.Get(parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)).Or(s.t)
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				p.read(d)
			}
		}
	}
	return p
}

func (p *sourcePackage) read(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			p.types[spec.Name.Name] = spec
			p.comments[spec.Name.Name] = sentence(spec.Doc, d.Doc)
		case *ast.ValueSpec:
			typed, isTyped := spec.Type.(*ast.Ident)
			if d.Tok != token.CONST || !isTyped || len(spec.Values) != 1 {
				continue
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
				if text, err := strconv.Unquote(value.Value); err == nil && text != "" {
					p.constants[typed.Name] = append(p.constants[typed.Name], text)
				}
			}
		}
	}
}

var goNil = regexp.MustCompile(`\bnil\b`)

// sentence is the first nonempty comment, in one line and in the terms of JSON.
func sentence(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if text := strings.Join(strings.Fields(c.Text()), " "); text != "" {
			return goNil.ReplaceAllString(text, "null")
		}
	}
	return ""
}

// typeName is the name of a type without its parameters.
func typeName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

// comment is the doc comment of a type.
func (s *sources) comment(t reflect.Type) string { return s.of(t.PkgPath()).comments[typeName(t)] }

// constants are the values that the source declares of a type.
func (s *sources) constants(t reflect.Type) []string {
	return s.of(t.PkgPath()).constants[typeName(t)]
}

// structOf is the source of a struct type; written is its type expression if it has no name.
func (s *sources) structOf(t reflect.Type, written ast.Expr) *ast.StructType {
	path := t.PkgPath()
	if t.Name() != "" {
		if spec := s.of(path).types[typeName(t)]; spec != nil {
			written = spec.Type
		}
	}
	for {
		switch e := written.(type) {
		case *ast.StructType:
			return e
		case *ast.StarExpr:
			written = e.X
		case *ast.ArrayType:
			written = e.Elt
		case *ast.Ident:
			written = s.of(path).underlying(e.Name)
		case *ast.SelectorExpr:
			path = modulePath + "internal/" + e.X.(*ast.Ident).Name
			written = s.of(path).underlying(e.Sel.Name)
		default:
			return &ast.StructType{Fields: &ast.FieldList{}}
		}
	}
}

func (p *sourcePackage) underlying(name string) ast.Expr {
	if spec := p.types[name]; spec != nil {
		return spec.Type
	}
	return nil
}

// fieldOf is the comment of a field, and its type expression. A comment that begins with the
// field's name and a verb is reduced to the rest.
func fieldOf(source *ast.StructType, name string) (comment string, written ast.Expr) {
	for _, f := range source.Fields.List {
		for _, n := range f.Names {
			if n.Name == name {
				comment = sentence(f.Doc, f.Comment)
				for _, verb := range []string{" is ", " are "} {
					if rest, ok := strings.CutPrefix(comment, name+verb); ok {
						comment = strings.TrimSuffix(rest, ".")
					}
				}
				return comment, f.Type
			}
		}
	}
	return "", nil
}
