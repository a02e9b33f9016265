package problems

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Problem is a problem that serve found in a manifest.
type Problem struct {
	// Manifest is the file, directory or URL.
	Manifest string `json:"manifest"`
	Error    string `json:"error"`
	// Pod is the NAMESPACE/NAME of the pod that the problem concerns, with the suffix of the node; "" if that is not
	// known.
	Pod string `json:"pod,omitempty"`
}

// File saves the manifest problems in a file for other commands, because a manifest that was
// never valid has no pod whose status could show them.
type File struct {
	file sys.ChangedFile
}

// NewFile returns the file at path.
func NewFile(path string) *File { return &File{sys.ChangedFile{Path: path}} }

// Write replaces the file if its contents change.
func (f *File) Write(problems []manifest.Problem) error {
	all := []Problem{}
	for _, p := range problems {
		one := Problem{Manifest: p.Origin.Path, Error: p.Err.Error()}
		if p.Key != (pod.Key{}) {
			one.Pod = p.Key.String()
		}
		all = append(all, one)
	}
	data, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encoding manifest problems: %w", err)
	}
	if err := f.file.Write(data, 0o600); err != nil {
		return fmt.Errorf("writing manifest problems: %w", err)
	}
	return nil
}

// Read returns the problems that serve found when it last read the manifests; nothing
// if it never ran.
func Read(dirs layout.Dirs) ([]Problem, error) {
	data, err := os.ReadFile(dirs.StatusFiles().ManifestProblems())
	if errors.Is(err, fs.ErrNotExist) || err == nil && !json.Valid(data) { // the latter is of an earlier boot
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading manifest problems: %w", err)
	}
	var all []Problem
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("reading %s: %w", dirs.StatusFiles().ManifestProblems(), err)
	}
	return all, nil
}
