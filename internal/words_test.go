package internal_test

import (
	"go/ast"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retired are words that stood for several things each: no package, type, function, field, package variable or file has
// one in its name. docs/architecture.md has the words that took their place.
var retired = strings.Fields(`place places room rooms round rounds turn turns look looks looker tell tells told found
	known take takes taken took hear heard said noted owed sight ring rings rang bell bells doorbell`)

// kept are the phrases that mean one thing.
var kept = []string{"notfound", "lookup", "roundtrip", "roundtripper", "roundup", "takeover"}

var words = regexp.MustCompile(`[A-Z]+(?:[a-z0-9]+)?|[a-z0-9]+`)

// retiredIn is the first retired word in a name; "" if there is none.
func retiredIn(name string) string {
	var parts []string
	for _, part := range words.FindAllString(name, -1) {
		parts = append(parts, strings.ToLower(part))
	}
	for i, part := range parts {
		phrase := func(from, to int) bool {
			return from >= 0 && to <= len(parts) && slices.Contains(kept, strings.Join(parts[from:to], ""))
		}
		if slices.Contains(retired, part) && !phrase(i, i+2) && !phrase(i-1, i+1) {
			return part
		}
	}
	return ""
}

// TestRetiredWords: who knows Kubernetes, containerd and Go knows what a name means.
func TestRetiredWords(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.dir != "cmd" && !strings.HasPrefix(s.dir, "internal") {
			continue
		}
		for _, name := range []string{strings.TrimSuffix(s.name, ".go"), filepath.Base(s.dir)} {
			if word := retiredIn(name); word != "" {
				t.Errorf("%s/%s: its name has %q", s.dir, s.name, word)
			}
		}
		refuse := func(names ...*ast.Ident) {
			for _, n := range names {
				if word := retiredIn(n.Name); word != "" {
					s.errorf(t, n.Pos(), "%s: its name has %q", n.Name, word)
				}
			}
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				refuse(d.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						refuse(spec.Names...)
					case *ast.TypeSpec:
						refuse(spec.Name)
						refuse(members(spec.Type)...)
					}
				}
			}
		}
	}
}

// members are the names of a struct's fields or an interface's methods.
func members(t ast.Expr) (names []*ast.Ident) {
	list := &ast.FieldList{}
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	}
	for _, f := range list.List {
		names = append(names, f.Names...)
	}
	return names
}

func TestRetiredIn(t *testing.T) {
	for name, want := range map[string]string{
		"takeRoom": "take", "ErrNotFound": "", "lookUpUser": "", "newLooks": "looks", "RoundTrip": "", "roundOf": "round",
		"roundUp": "", "placement": "", "string": "", "foundation": "",
	} {
		if got := retiredIn(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
