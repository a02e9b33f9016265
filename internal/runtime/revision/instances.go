package revision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// Remember implements runtime.Data. A revision that was removed meanwhile needs no notes.
func (f *Files) Remember(uid pod.UID, newest []pod.Container) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	data, err := json.Marshal(newest)
	if err != nil {
		return fmt.Errorf("encoding the instances of revision %s: %w", uid, err)
	}
	if err := host.WriteFile(f.o.Dirs.Instances(uid), data, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("noting down the instances of revision %s: %w", uid, err)
	}
	return nil
}

// Remembered reads the instances of the revision that were noted down, nil when there are none.
func (f *Files) Remembered(uid pod.UID) []pod.Container {
	newest, _ := f.noted(uid, Saved{})
	return newest
}

// noted reads the instances that were noted down for the revision, unless they are what was read before.
func (f *Files) noted(uid pod.UID, was Saved) ([]pod.Container, os.FileInfo) {
	path := f.o.Dirs.Instances(uid)
	file, err := os.Lstat(path)
	if err != nil {
		return nil, nil
	}
	if was.noted != nil && os.SameFile(was.noted, file) && was.noted.ModTime().Equal(file.ModTime()) {
		return was.Newest, file
	}
	var newest []pod.Container
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &newest)
	}
	if err != nil {
		f.o.Log.Warn("the notes of instances cannot be read; restart counts may begin anew", "uid", uid, "why", err)
		return nil, file
	}
	for i := range newest {
		newest[i].UID = uid
	}
	return newest, file
}
