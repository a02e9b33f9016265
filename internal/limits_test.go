package internal_test

import (
	"bufio"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The limits of the house. The tail is what ruins a code base: a limit holds for every package.
const (
	maxFile, maxFunc = 500, 80 // lines
	maxPackage       = 2000    // lines of a package, tests apart
	maxAgent         = 900     // lines of internal/agent, which only wires others together
	maxMethods       = 25      // of a type
	maxFields        = 20      // of a struct, options apart
	maxParameters    = 5       // of a function
	maxImports       = 16      // packages of podrun's own that a package imports; agent and cmd: maxWiring
	maxWiring        = 30
	maxColumns       = 120
	tabWidth         = 4
)

// product are the sources of podrun itself and of its tools, without tests.
func product(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(sources(t), func(s source) bool { return s.test })
}

func TestLengths(t *testing.T) {
	for _, s := range product(t) {
		line := func(p token.Pos) int { return s.fset.Position(p).Line }
		if n := line(s.file.FileEnd); n > maxFile {
			s.errorf(t, s.file.Package, "file of %d lines", n)
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && line(f.End())-line(f.Pos()) >= maxFunc {
				s.errorf(t, f.Pos(), "%s has %d lines", f.Name.Name, line(f.End())-line(f.Pos())+1)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	lines, imports := map[string]int{}, map[string]map[string]bool{}
	methods := map[string]int{}
	for _, s := range product(t) {
		lines[s.dir] += s.fset.Position(s.file.FileEnd).Line
		if imports[s.dir] == nil {
			imports[s.dir] = map[string]bool{}
		}
		for _, spec := range s.file.Imports {
			if ours, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module); ok {
				imports[s.dir][ours] = true
			}
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if f.Recv != nil {
					methods[s.dir+"."+receiver(f)]++
				}
				if n := f.Type.Params.NumFields(); n > maxParameters {
					s.errorf(t, f.Pos(), "%s has %d parameters", f.Name.Name, n)
				}
			}
		}
		s.checkFields(t)
	}
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		most := maxPackage
		if dir == "internal/agent" {
			most = maxAgent
		}
		if lines[dir] > most {
			t.Errorf("%s: %d lines", dir, lines[dir])
		}
		most = maxImports
		if dir == "cmd" || dir == "internal/agent" {
			most = maxWiring
		}
		if n := len(imports[dir]); n > most {
			t.Errorf("%s imports %d of podrun's packages", dir, n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if methods[name] > maxMethods {
			t.Errorf("%s has %d methods", name, methods[name])
		}
	}
}

// receiver is the name of the type that f is a method of.
func receiver(f *ast.FuncDecl) string {
	at := f.Recv.List[0].Type
	if star, ok := at.(*ast.StarExpr); ok {
		at = star.X
	}
	switch at := at.(type) {
	case *ast.Ident:
		return at.Name
	case *ast.IndexExpr:
		return at.X.(*ast.Ident).Name
	}
	return "?"
}

// checkFields reports the structs with too many fields. A struct of options is a list of settings, however
// many there are.
func (s source) checkFields(t *testing.T) {
	t.Helper()
	ast.Inspect(s.file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		at, ok := spec.Type.(*ast.StructType)
		if !ok || strings.HasSuffix(spec.Name.Name, "Options") || strings.HasSuffix(spec.Name.Name, "Flags") {
			return true
		}
		if n := at.Fields.NumFields(); n > maxFields {
			s.errorf(t, spec.Pos(), "%s has %d fields", spec.Name.Name, n)
		}
		return true
	})
}

// TestColumns: a signature, a literal or a condition that needs more than a line is several lines. Text in
// quotes is not broken for it.
func TestColumns(t *testing.T) {
	for _, s := range product(t) {
		quoted := map[int]bool{}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				from, to := s.fset.Position(text.Pos()).Line, s.fset.Position(text.End()).Line
				if len(text.Value) > 20 || to > from {
					for l := from; l <= to; l++ {
						quoted[l] = true
					}
				}
			}
			return true
		})
		f, err := os.Open(s.fset.Position(s.file.Package).Filename)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			tabs := strings.Count(lines.Text(), "\t")
			if utf8.RuneCountInString(lines.Text())+tabs*(tabWidth-1) > maxColumns && !quoted[n] {
				t.Errorf("%s:%d: more than %d columns", f.Name(), n, maxColumns)
			}
		}
		if err := lines.Err(); err != nil {
			t.Error(err)
		}
		_ = f.Close()
	}
}
