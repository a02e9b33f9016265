package containerd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"podrun.io/podrun/internal/pod"
)

// NoteEnding implements runtime.Data. The notes are lines in the mark of the instance's start, after its first: the last
// whole one counts, so that one that was cut off is harmless, and they go with the mark.
func (r *Runtime) NoteEnding(uid pod.UID, id string, e pod.Ending) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding the end of %s: %w", id, err)
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
		return fmt.Errorf("noting down the end of %s: %w", id, err)
	}
	e.Hooking = false
	r.endings.Put(id, e)
	return nil
}

// ending is what was noted down of the instance's end; of those that this podrun started nothing is read.
func (r *Runtime) ending(uid pod.UID, id string) pod.Ending {
	if e, known := r.endings.Get(id); known {
		return e
	}
	var e pod.Ending
	data, err := os.ReadFile(r.Dirs.Started(uid, id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Log.Warn("how far an instance was brought to its end is not known", "container", id, "why", err)
	}
	for line := range bytes.Lines(data) {
		var next pod.Ending
		if bytes.HasSuffix(line, []byte{'\n'}) && json.Unmarshal(line, &next) == nil {
			e = next
		}
	}
	r.endings.Put(id, e)
	return e
}
