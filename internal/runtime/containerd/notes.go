package containerd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// Note implements runtime.Data. The notes are lines in the mark of the instance's start, after its first: the last
// whole one counts, so that one that was cut off is harmless, and they go with the mark.
func (r *Runtime) Note(uid pod.UID, id string, n pod.Notes) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	line, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encoding the notes of %s: %w", id, err)
	}
	// The newline before it parts it from one that was cut off.
	line = append(append([]byte{'\n'}, line...), '\n')
	file, err := os.OpenFile(r.Dirs.Started(uid, id), os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing that runs has no mark, unless the pod's directory was lost
	}
	if err == nil {
		_, err = file.Write(line)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("noting down the course of %s: %w", id, err)
	}
	n.Hooking = false
	r.notes.Put(id, n)
	return nil
}

// notesOf is what was noted down of the instance; of those that this podrun started nothing is read.
func (r *Runtime) notesOf(uid pod.UID, id string) pod.Notes {
	if n, known := r.notes.Get(id); known {
		return n
	}
	var n pod.Notes
	data, err := os.ReadFile(r.Dirs.Started(uid, id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Log.Warn("what an instance has come to is not known", "container", id, "why", err)
	}
	for line := range bytes.Lines(data) {
		var next pod.Notes
		if bytes.HasSuffix(line, []byte{'\n'}) && json.Unmarshal(line, &next) == nil {
			n = next
		}
	}
	r.notes.Put(id, n)
	return n
}
