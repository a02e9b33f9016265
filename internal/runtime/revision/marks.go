package revision

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

// Mark says that the instance's process may have run, in this boot, and what is noted down of it at its start. The
// directory of the revision's marks must be there.
func (f *Files) Mark(uid pod.UID, id string, n pod.Notes) error {
	text := []byte(f.o.Boot + "\n")
	if n != (pod.Notes{}) {
		line, err := noteLine(id, n)
		if err != nil {
			return err
		}
		text = append(text, line...)
	}
	if err := os.WriteFile(f.o.Dirs.Started(uid, id), text, 0o600); err != nil {
		return fmt.Errorf("marking the start: %w", err)
	}
	f.notes.Put(id, n)
	return nil
}

// Marked reports the mark that the instance's process may have run in this boot. A mark that cannot be read counts;
// one that is not whole was cut off before the start.
func (f *Files) Marked(uid pod.UID, id string) bool {
	text, err := os.ReadFile(f.o.Dirs.Started(uid, id))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return bytes.HasPrefix(text, []byte(f.o.Boot+"\n"))
}

// Unmark removes the mark that the instance's process may have run, and the notes with it.
func (f *Files) Unmark(uid pod.UID, id string) error {
	f.notes.Drop(id)
	if err := os.Remove(f.o.Dirs.Started(uid, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the mark of a start: %w", err)
	}
	return nil
}

// Note implements runtime.Data. The notes are lines in the mark of the instance's start, after its first: the last
// whole one counts, so that one that was cut off is harmless, and they go with the mark.
func (f *Files) Note(uid pod.UID, id string, n pod.Notes) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	line, err := noteLine(id, n)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(f.o.Dirs.Started(uid, id), os.O_WRONLY|os.O_APPEND, 0)
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
	f.notes.Put(id, n)
	return nil
}

// noteLine is what a mark gets for notes. The newline before it parts it from one that was cut off.
func noteLine(id string, n pod.Notes) ([]byte, error) {
	line, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encoding the notes of %s: %w", id, err)
	}
	return append(append([]byte{'\n'}, line...), '\n'), nil
}

// NotesOf is what was noted down of the instance; of those that this podrun started nothing is read.
func (f *Files) NotesOf(uid pod.UID, id string) pod.Notes {
	if n, known := f.notes.Get(id); known {
		return n
	}
	var n pod.Notes
	data, err := os.ReadFile(f.o.Dirs.Started(uid, id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.o.Log.Warn("what an instance has come to is not known", "container", id, "why", err)
	}
	for line := range bytes.Lines(data) {
		var next pod.Notes
		if bytes.HasSuffix(line, []byte{'\n'}) && json.Unmarshal(line, &next) == nil {
			n = next
		}
	}
	f.notes.Put(id, n)
	return n
}
