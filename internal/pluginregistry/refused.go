package pluginregistry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/errtext"
)

// Refused is a plugin that cannot be registered, for people.
type Refused struct {
	// Socket is where it is found, and Error why it is not used.
	Socket string `json:"socket"`
	Error  string `json:"error"`
}

// refuse records why the plugin at a socket cannot be registered; nil: it can be, or it is gone.
func (r *Registry) refuse(socket string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errtext.Same(err, r.refused[socket]) {
		return
	}
	r.refused[socket] = err
	if err == nil {
		delete(r.refused, socket)
	}
	r.write()
}

// write writes down what cannot be registered, for commands. The caller holds mu.
func (r *Registry) write() {
	all := []Refused{}
	for _, socket := range slices.Sorted(maps.Keys(r.refused)) {
		all = append(all, Refused{socket, r.refused[socket].Error()})
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = sys.WriteFile(r.o.File, text, 0o600)
	}
	if err != nil {
		r.o.Log.Warn("podrun get plugins cannot show which plugins cannot be registered", "err", err)
	}
}

// ReadRefused returns what a Registry has written to its file: the plugins that cannot be registered, by socket.
func ReadRefused(file string) (all []Refused, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which plugins cannot be registered: %w", err)
	}
	return all, nil
}
