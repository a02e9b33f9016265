package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"podrun.io/podrun/internal/cli"
)

// Explain returns a usage error that names the flag in place of an error of a path in one of podrun's directories
// that cannot exist, because something above it is a file. Other errors are returned unchanged.
//
// It says so only when a command fails by it: a command that does nothing in a directory may be given any.
func (g *Global) Explain(err error) error {
	var failed *fs.PathError
	if !errors.As(err, &failed) || !errors.Is(failed.Err, syscall.ENOTDIR) {
		return err
	}
	for _, d := range g.directories() {
		if *d.path == "" || failed.Path != *d.path && !strings.HasPrefix(failed.Path, *d.path+"/") {
			continue
		}
		for above := filepath.Dir(*d.path); above != "/" && above != "."; above = filepath.Dir(above) {
			if info, err := os.Stat(above); err == nil && !info.IsDir() {
				return &cli.Error{
					Code: cli.ExitUsage, Err: fmt.Errorf("--%s %s: %s is not a directory", d.name, *d.path, above),
				}
			}
		}
	}
	return err
}

// namedDirectory is a directory with the name of the flag that names it.
type namedDirectory struct {
	name string
	path *string
}

func (g *Global) directories() []namedDirectory {
	return []namedDirectory{
		{"root-dir", &g.RootDir}, {"run-dir", &g.RunDir}, {"log-dir", &g.LogDir}, {"log-links-dir", &g.LogLinksDir},
	}
}
