package claims

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/mounted"
	"podrun.io/podrun/internal/volume/provision"
)

// ErrInUse reports that a pod uses the volume.
var ErrInUse = errors.New("in use")

// ErrNoVolume reports that there is no such volume.
var ErrNoVolume = errors.New("no such volume")

// Remove removes a volume and its content. It fails with ErrInUse if a pod uses it and with
// ErrNoVolume if it does not exist. Kept says what its driver keeps, after a semicolon; "" if nothing.
func Remove(ctx context.Context, dirs layout.Dirs, claim pod.Key, waiting Waiting) (kept string, err error) {
	dir := dirs.Claim(claim.Namespace, claim.Name)
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("removing volume %s: %w", claim, err)
	}
	if !isName(claim.Namespace) || !isName(claim.Name) {
		return fail(ErrNoVolume)
	}
	free := func() error {
		using, err := users(dirs, waiting)
		if pods := using[claim]; len(pods) > 0 {
			return fmt.Errorf("%w by pod %s, which must be removed first", ErrInUse, strings.Join(pods, ", "))
		}
		return err
	}
	found, kept, err := provision.Remove(ctx, dirs, claim, free)
	if !found && err == nil {
		found, kept, err = provision.Unbind(dirs, claim, free)
	}
	if err != nil {
		return fail(err)
	}
	if found {
		return kept, nil
	}
	if err := provision.CheckMounted(dirs, claim); err != nil {
		return fail(err)
	}
	if err := removeDirectory(ctx, dir, free); err != nil {
		return fail(err)
	}
	return "", nil
}

// isName reports whether the claim's name can be that of a directory of podrun's.
func isName(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, "/\x00")
}

// removeDirectory removes a claim that is a directory.
func removeDirectory(ctx context.Context, dir string, free func() error) error {
	going := filepath.Join(filepath.Dir(dir), nameOfGoing(filepath.Base(dir)))
	is := func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && info.IsDir()
	}
	if !is(dir) && !is(going) { // the latter is what a command that was killed has left
		if err := sys.SyncRemoved(dir); err != nil {
			return err
		}
		return ErrNoVolume
	}
	if err := errors.Join(free(), mounted.Nothing(dir)); err != nil {
		return err
	}
	if err := removeTree(ctx, going); err != nil {
		return err
	}
	switch err := os.Rename(dir, going); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	}
	// A pod that was created in the meantime uses this volume, or has created an empty one in its
	// place, which the rename replaces.
	if err := free(); err != nil {
		return errors.Join(err, os.Rename(going, dir))
	}
	if err := errors.Join(removeTree(ctx, going), sys.SyncRemoved(dir)); err != nil {
		return err
	}
	err := os.Remove(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) ||
		errors.Is(err, unix.EBUSY) { // the namespace's directory is a mount
		return nil
	}
	return err
}

// nameOfGoing returns the name under which a claim's directory is removed.
func nameOfGoing(claim string) string {
	const prefix = ".going-"
	if len(prefix+claim) > unix.NAME_MAX {
		sum := sha256.Sum256([]byte(claim))
		claim = hex.EncodeToString(sum[:])
	}
	return prefix + claim
}

// removeTree removes a directory in which nothing is mounted. Symbolic links in it are removed, not
// followed.
func removeTree(ctx context.Context, dir string) error {
	if err := mounted.Nothing(dir); err != nil {
		return err
	}
	return sys.RemoveTree(ctx, dir)
}
