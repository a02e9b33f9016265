package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/workload"
)

// Workload is a workload of serve, as it is saved for commands.
type Workload struct {
	Kind      workload.Kind `json:"kind"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	// Pods are the full names of its pods.
	Pods []string `json:"pods"`
	// Hash is the annotation manifest.AnnotationManifestHash of pods that run its template.
	Hash string `json:"hash"`
	// Seen is when the template was first read, RFC 3339.
	Seen   string          `json:"seen"`
	Object json.RawMessage `json:"object"`
}

// SaveWorkloads saves the workloads that serve runs. They are output: no decision depends on them.
func SaveWorkloads(dirs layout.Dirs, all []*workload.Workload) error {
	saved := []Workload{}
	for _, w := range all {
		object, err := json.Marshal(w.Object)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", w, err)
		}
		one := Workload{
			Kind: w.Kind, Namespace: w.Key.Namespace, Name: w.Key.Name, Object: object,
			Hash: w.Template.Annotations[manifest.AnnotationManifestHash],
			Seen: w.Template.Annotations[manifest.AnnotationSeen],
		}
		for _, name := range w.Names() {
			one.Pods = append(one.Pods, name+w.Suffix)
		}
		saved = append(saved, one)
	}
	text, err := json.Marshal(saved)
	if err == nil {
		err = sys.WriteFile(dirs.StatusFiles().Workloads(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("saving workloads: %w", err)
	}
	return nil
}

// Workloads returns the workloads of the serve that runs, or ran last.
func Workloads(dirs layout.Dirs) ([]Workload, error) {
	text, err := os.ReadFile(dirs.StatusFiles().Workloads())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Workload
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("reading workloads: %w", err)
	}
	return all, nil
}
