package filesource

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// LooseError says that others than root and a file's owner could change what podrun runs as root.
type LooseError struct {
	// Path is the file, or the directory that it is in.
	Path string
	Mode fs.FileMode
	// Who may write: every user, or a group by its number.
	Who string
}

func (e *LooseError) Error() string {
	return fmt.Sprintf("%s: can be written by %s (mode %04o); chmod go-w it", e.Path, e.Who, e.Mode.Perm())
}

// loose reports a file or directory that others than root and its owner may write; nil if none may.
// A directory in which nobody may touch another's files counts only where new ones matter.
func loose(path string, info fs.FileInfo, newFilesMatter bool) error {
	if info.IsDir() && info.Mode()&fs.ModeSticky != 0 && !newFilesMatter {
		return nil
	}
	const byGroup, byAll = 0o020, 0o002
	switch mode := info.Mode(); {
	case mode&byAll != 0:
		return &LooseError{Path: path, Mode: mode, Who: "every user"}
	case mode&byGroup != 0:
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Gid == 0 {
			return nil
		}
		return &LooseError{Path: path, Mode: mode, Who: fmt.Sprintf("group %d", st.Gid)}
	}
	return nil
}

// looseDirs are those of dirs in which others than root and the owner could put another file in a
// manifest's place. What is wrong with one that is not there shows elsewhere.
func looseDirs(dirs []string) []error {
	var all []error
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil {
			if err := loose(dir, info, false); err != nil {
				all = append(all, err)
			}
		}
	}
	return all
}

// sameErrors reports that two lists of errors say the same.
func sameErrors(a, b []error) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Error() != b[i].Error() {
			return false
		}
	}
	return true
}
