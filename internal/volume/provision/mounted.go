package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/mounted"
)

// CheckMounted returns an error if something was mounted on the directory of all claims, of those of the claim's
// namespace or of the claim, and is not now, as when that is mounted late in a boot. The claim would be made anew on
// the disk below, and pods begin without their data.
func CheckMounted(dirs layout.Dirs, claim pod.Key) error {
	for dir, record := range levels(dirs, claim) {
		if _, _, err := checkMounted(dir, record); err != nil {
			return err
		}
	}
	return nil
}

// RecordMounted is CheckMounted, and records what is mounted. It leaves out the claim itself if its name is "".
func RecordMounted(dirs layout.Dirs, claim pod.Key) error {
	for dir, record := range levels(dirs, claim) {
		is, recorded, err := checkMounted(dir, record)
		if err != nil {
			return err
		}
		if !is || recorded {
			continue
		}
		parent := filepath.Dir(record)
		if err := os.MkdirAll(parent, layout.ModePrivate); err != nil {
			return err
		}
		err = os.WriteFile(record, nil, 0o600) // without a temporary file, whose name may be that of another claim
		err = errors.Join(err, sys.SyncDir(parent), sys.SyncDir(filepath.Dir(parent)), sys.SyncDir(dirs.Root))
		if err != nil {
			return err
		}
	}
	return nil
}

// levels returns the directories that lead to a claim, from the top, each with the file that records that something is
// mounted on it.
func levels(dirs layout.Dirs, claim pod.Key) iter.Seq2[string, string] {
	return func(yield func(dir, record string) bool) {
		_ = yield(dirs.Claims(), layout.ClaimsMounted(dirs, "", "")) &&
			yield(filepath.Join(dirs.Claims(), claim.Namespace), layout.ClaimsMounted(dirs, claim.Namespace, "")) &&
			claim.Name != "" &&
			yield(dirs.Claim(claim.Namespace, claim.Name), layout.ClaimsMounted(dirs, claim.Namespace, claim.Name))
	}
}

// checkMounted reports whether something is mounted on a directory, and whether that is recorded.
func checkMounted(dir, record string) (is, recorded bool, err error) {
	is, err = mounted.At(dir, filepath.Dir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, false, err
	}
	if _, err := os.Lstat(record); errors.Is(err, fs.ErrNotExist) || err == nil && is {
		return is, err == nil, nil
	} else if err != nil {
		return false, false, err
	}
	return false, true, fmt.Errorf("the file system of %s is not mounted; if it is to have none any more, remove %s", dir, record)
}
