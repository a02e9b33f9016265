package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/mounted"
	"podrun.io/podrun/internal/volume/directory"
)

// CheckMounted returns an error if something was mounted on the directory of all claims, of those of the claim's
// namespace or of the claim, and is not now, as when that is mounted late in a boot. The claim would be made anew on
// the disk below, and pods begin without their data.
func CheckMounted(dirs layout.Dirs, claim pod.Key) error {
	for l, err := range levels(dirs, claim) {
		if err == nil {
			_, err = l.isRecorded()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RecordMounted is CheckMounted, and records what is mounted. It leaves out the claim itself if its name is "".
func RecordMounted(dirs layout.Dirs, claim pod.Key) error {
	for l, err := range levels(dirs, claim) {
		if err != nil {
			return err
		}
		recorded, err := l.isRecorded()
		if err != nil {
			return err
		}
		if !l.mounted || recorded {
			continue
		}
		parent := filepath.Dir(l.record)
		if err := os.MkdirAll(parent, layout.ModePrivate); err != nil {
			return err
		}
		err = os.WriteFile(l.record, nil, 0o600) // without a temporary file, whose name may be that of another claim
		err = errors.Join(err, sys.SyncDir(parent), sys.SyncDir(filepath.Dir(parent)), sys.SyncDir(dirs.Root))
		if err != nil {
			return err
		}
	}
	return nil
}

// level is a directory that leads to a claim, or is its own.
type level struct {
	dir, record string // record is the file that says that something is mounted on dir
	mounted     bool   // something is, now
}

// levels returns the directories that lead to a claim, from the top. Without a name these are those of its namespace.
// Symbolic links are not followed, except for that of the directory of all claims.
func levels(dirs layout.Dirs, claim pod.Key) iter.Seq2[level, error] {
	at := func(dir, namespace, name string, is func() (bool, error)) (level, error) {
		mounted, err := is()
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return level{dir, layout.ClaimsMounted(dirs, namespace, name), mounted}, err
	}
	in := func(namespace, name string) func() (bool, error) {
		return func() (bool, error) {
			dir, err := directory.OpenClaims(dirs, namespace, unix.O_PATH)
			if err != nil {
				return false, err
			}
			defer dir.Close()
			return mounted.In(dir, name)
		}
	}
	return func(yield func(level, error) bool) {
		all, space := dirs.Claims(), filepath.Join(dirs.Claims(), claim.Namespace)
		_ = yield(at(all, "", "", func() (bool, error) { return mounted.At(all, dirs.Root) })) &&
			yield(at(space, claim.Namespace, "", in(".", claim.Namespace))) && claim.Name != "" &&
			yield(at(filepath.Join(space, claim.Name), claim.Namespace, claim.Name, in(claim.Namespace, claim.Name)))
	}
}

// isRecorded reports whether something was mounted on the directory before. The error says that nothing is now.
func (l level) isRecorded() (bool, error) {
	_, err := os.Lstat(l.record)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !l.mounted:
		return true, fmt.Errorf("the file system of %s is not mounted; if it is to have none any more, remove %s", l.dir, l.record)
	}
	return true, nil
}
