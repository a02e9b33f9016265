package claims

import (
	"cmp"
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
	"podrun.io/podrun/internal/volume/directory"
	"podrun.io/podrun/internal/volume/provision"
)

// ErrInUse reports that a pod uses the volume.
var ErrInUse = errors.New("in use")

// ErrNoVolume reports that there is no such volume.
var ErrNoVolume = errors.New("no such volume")

// Remove removes a volume and its content. It fails with ErrInUse if a pod uses it and with
// ErrNoVolume if it does not exist. Kept says what its driver keeps, after a semicolon; "" if nothing.
func Remove(ctx context.Context, dirs layout.Dirs, claim pod.Key, waiting Waiting) (kept string, err error) {
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
	if err := removeDirectory(ctx, dirs, claim, free); err != nil {
		return fail(err)
	}
	return "", nil
}

// isName reports whether the claim's name can be that of a directory of podrun's.
func isName(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, "/\x00")
}

// removeDirectory removes a claim that is a directory. What it does, it does in the directory of the namespace that it
// has opened: who can write there may replace any name by a link.
func removeDirectory(ctx context.Context, dirs layout.Dirs, claim pod.Key, free func() error) error {
	space := filepath.Join(dirs.Claims(), claim.Namespace)
	in, err := directory.OpenClaims(dirs, claim.Namespace, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(sys.SyncRemoved(space), ErrNoVolume)
	}
	if err != nil {
		return err
	}
	defer in.Close()
	going := nameOfGoing(claim.Name)
	if !isDirectory(in, claim.Name) && !isDirectory(in, going) { // what a command that was killed has left
		return cmp.Or(sys.SyncOpen(in), ErrNoVolume)
	}
	if err := errors.Join(free(), nothingMounted(in, claim.Name)); err != nil {
		return err
	}
	if err := removeTree(ctx, in, going); err != nil {
		return err
	}
	if err := rename(in, claim.Name, going); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A pod that was created in the meantime uses this volume, or has created an empty one in its
	// place, which the rename replaces.
	if err := free(); err != nil {
		return errors.Join(err, rename(in, going, claim.Name))
	}
	if err := errors.Join(removeTree(ctx, in, going), sys.SyncOpen(in)); err != nil {
		return err
	}
	err = unix.Rmdir(space)
	if errors.Is(err, fs.ErrNotExist) { // another command has removed it
		return sys.SyncRemoved(space)
	}
	if err == nil || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) ||
		errors.Is(err, unix.EBUSY) { // the namespace's directory is a mount
		return nil
	}
	return &os.PathError{Op: "rmdir", Path: space, Err: err}
}

// isDirectory reports whether a name in an open directory is that of a directory.
func isDirectory(in *os.File, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(in.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func rename(in *os.File, from, to string) error {
	err := unix.Renameat(int(in.Fd()), from, int(in.Fd()), to)
	if err != nil {
		from, to = filepath.Join(in.Name(), from), filepath.Join(in.Name(), to)
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
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

// nothingMounted returns an error if something is mounted on a name in an open directory, or in it.
func nothingMounted(in *os.File, name string) error {
	return mounted.Nothing(filepath.Join(sys.FDPath(int(in.Fd())), name))
}

// removeTree removes a directory in which nothing is mounted. Symbolic links in it are removed, not
// followed.
func removeTree(ctx context.Context, in *os.File, name string) error {
	if err := nothingMounted(in, name); err != nil {
		return err
	}
	return sys.RemoveTreeIn(ctx, in, name)
}
