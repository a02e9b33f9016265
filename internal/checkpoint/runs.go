package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// Runs is what a Disk stores of Jobs, CronJobs and results, which outlive pods: one text for each.
type Runs interface {
	// RunPath returns the path of a text, for messages.
	RunPath(name string) string
	// RunNames returns the names of all texts, and ReadRun returns a text.
	RunNames() ([]string, error)
	ReadRun(name string) ([]byte, error)
	// WriteRun replaces a text as a whole. After a power failure it is there.
	WriteRun(name string, data []byte) error
	// RemoveRun removes a text. It is no error if there is none.
	RemoveRun(name string) error
}

// Run is the stored run of a Job, or what is stored of a CronJob.
type Run struct {
	Version int `json:"version"`
	// Kind is "" for a Job, and kindResult for the result of a pod.
	Kind      string          `json:"kind,omitempty"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	History   json.RawMessage `json:"history"`
	// Err is why the run cannot be read; it has no History then.
	Err error `json:"-"`
}

// file returns the name of the run's text. It has characters of namespaces and names, and one of neither.
func (r Run) file() string {
	if r.Kind != "" {
		return r.Kind + "_" + r.Namespace + "_" + r.Name
	}
	return r.Namespace + "_" + r.Name
}

// runOf returns the run that has a file, without its history, and whether one can have it.
func runOf(file string) (Run, bool) {
	switch parts := strings.Split(file, "_"); len(parts) {
	case 2:
		return Run{Namespace: parts[0], Name: parts[1]}, true
	case 3:
		return Run{Kind: parts[0], Namespace: parts[1], Name: parts[2]}, true
	}
	return Run{}, false
}

func (r Run) what() string { return cmp.Or(r.Kind, "Job") + " " + r.Namespace + "/" + r.Name }

// maxRun bounds the text of a run.
const maxRun = 64 << 20

// SaveRun stores a run in place of the last one of its Job. It returns once the run survives a power failure.
func (s *Store) SaveRun(r Run) error {
	r.Version = Version
	data, err := json.Marshal(r)
	if err == nil && len(data) > maxRun {
		err = fmt.Errorf("it is larger than %d MiB", maxRun>>20)
	}
	if err == nil {
		err = s.disk.WriteRun(r.file(), data)
	}
	if err != nil {
		return fmt.Errorf("recording the run of %s: %w", r.what(), err)
	}
	return nil
}

// RunPath returns the path of a stored run, for messages.
func (s *Store) RunPath(r Run) string { return s.disk.RunPath(r.file()) }

// RemoveRun removes what is stored under a run's kind and name, if there is anything.
func (s *Store) RemoveRun(r Run) error {
	if err := s.disk.RemoveRun(r.file()); err != nil {
		return fmt.Errorf("removing the run of %s: %w", r.what(), err)
	}
	return nil
}

// Runs returns the stored runs, also those that cannot be read.
func (s *Store) Runs() ([]Run, error) {
	all, err := allRuns(s)
	return slices.DeleteFunc(all, func(r Run) bool { return r.Kind == kindResult }), err
}

// allRuns returns the stored runs and results.
func allRuns(s *Store) ([]Run, error) {
	files, err := s.disk.RunNames()
	if err != nil {
		return nil, fmt.Errorf("reading the runs of Jobs: %w", err)
	}
	var all []Run
	for _, file := range files {
		named, is := runOf(file)
		if !is {
			continue
		}
		r := Run{}
		text, err := s.disk.ReadRun(file)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		switch {
		case err == nil && r.Version > Version:
			err = ErrLater
		case err == nil && r.file() != file:
			err = errors.New("it is that of something else")
		}
		if err != nil {
			r, r.Err = named, err
		}
		all = append(all, r)
	}
	return all, nil
}

const runSuffix = ".json"

// RunPath implements Disk.
func (d osDisk) RunPath(name string) string {
	return filepath.Join(layout.Runs(d.dirs), name+runSuffix)
}

// RunNames implements Disk.
func (d osDisk) RunNames() ([]string, error) {
	entries, err := os.ReadDir(layout.Runs(d.dirs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), runSuffix); is && e.Type().IsRegular() {
			all = append(all, name)
		}
	}
	return all, nil
}

// ReadRun implements Disk.
func (d osDisk) ReadRun(name string) ([]byte, error) {
	f, err := os.Open(d.RunPath(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRun+1))
	if len(text) > maxRun {
		return nil, fmt.Errorf("it is larger than %d MiB", maxRun>>20)
	}
	return text, err
}

// WriteRun implements Disk.
func (d osDisk) WriteRun(name string, data []byte) error {
	if err := os.MkdirAll(layout.Runs(d.dirs), 0o700); err != nil {
		return err
	}
	return sys.WriteDurable(d.RunPath(name), data, 0o600)
}

// RemoveRun implements Disk.
func (d osDisk) RemoveRun(name string) error {
	err := os.Remove(d.RunPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
