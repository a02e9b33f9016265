package connection

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// ElsewhereError says that the run directory's pods are in another containerd, in another of its
// namespaces, or of another root directory. A podrun that only inspects its own containerd and
// checkpoints would remove what is left of these pods, including volumes and their network, and
// start each pod a second time.
type ElsewhereError struct {
	// Address and Namespace are those of the containerd that has the pods. Address is a socket, or
	// Embedded.
	Address, Namespace string
	// Root is the root directory with the pods' checkpoints if that is another one, else "".
	Root string
	// Run is the run directory. Note is the file that records where its pods are.
	Run, Note string
}

func (e *ElsewhereError) Error() string {
	at := "the containerd at " + e.Address
	if e.Address == Embedded {
		at = "podrun's own containerd"
	}
	text := fmt.Sprintf("the pods of %s are in namespace %s of %s", e.Run, e.Namespace, at)
	if e.Root != "" {
		text += ", with the root directory " + e.Root
	}
	return text
}

// Hint says how to resolve the conflict.
func (e *ElsewhereError) Hint() string {
	use, root := "use that containerd", ""
	if e.Root != "" {
		use, root = "use these", " --root-dir "+e.Root
	}
	return fmt.Sprintf("%s, or remove the pods there first: "+
		"podrun down --all --containerd-address %s --containerd-namespace %s%s; "+
		"if that containerd no longer exists, remove %s",
		use, e.Address, e.Namespace, root, e.Note)
}

// binding records which containerd, and which namespace of it, has the pods of a run directory, which
// root directory has their checkpoints, and in which boot. An older podrun did not record the root.
type binding struct{ address, namespace, boot, root string }

// is reports that both are the same namespace of the same containerd with the same root directory.
// Socket paths are not compared, because a socket may be moved: another path need not be another
// containerd.
func (p binding) is(other binding) bool {
	return p.namespace == other.namespace && (p.address == Embedded) == (other.address == Embedded) &&
		sameDir(p.root, other.root)
}

// sameDir reports that both are one directory, whatever path it has, or one is not known.
func sameDir(a, b string) bool {
	if a == "" || b == "" || a == b {
		return true
	}
	here, err := os.Stat(a)
	there, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(here, there)
}

// bind binds the run directory to one containerd namespace until unbind is called. All podruns
// that create or remove pods hold a shared lock of the binding's file. A podrun with another
// binding may change it only if nobody else holds the lock and no pods are left: empty says so of the
// root directory of the other binding.
func bind(dirs layout.Dirs, here binding, empty func(root string) (bool, error)) (unbind func(), err error) {
	f, err := os.OpenFile(dirs.Binding(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("binding the run directory to containerd: %w", err)
	}
	var there binding
	err = owner.AfterForks(func() (err error) {
		there, err = tryToBind(f, here, empty)
		return err
	})
	if err == nil {
		return func() { f.Close() }, nil
	}
	f.Close()
	if errors.Is(err, errElsewhere) || errors.Is(err, unix.EWOULDBLOCK) && there.boot == here.boot {
		elsewhere := &ElsewhereError{
			Address:   there.address,
			Namespace: there.namespace,
			Run:       dirs.Run,
			Note:      dirs.Binding(),
		}
		if !sameDir(there.root, here.root) {
			elsewhere.Root = there.root
		}
		return nil, elsewhere
	}
	return nil, fmt.Errorf("binding the run directory to containerd: %w", err)
}

var errElsewhere = errors.New("pods are elsewhere")

// tryToBind fails with errElsewhere if there are pods with another binding, and with EWOULDBLOCK
// while other podruns hold the lock or one is just changing the binding.
func tryToBind(f *os.File, here binding, empty func(root string) (bool, error)) (there binding, err error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return binding{}, err
	}
	there, err = readBinding(f)
	if err != nil || there.boot == here.boot && there.is(here) {
		return there, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return there, err
	}
	if there.boot == here.boot {
		if free, err := empty(cmp.Or(there.root, here.root)); err != nil {
			return there, err
		} else if !free {
			return there, errElsewhere
		}
	}
	if err := f.Truncate(0); err != nil {
		return there, err
	}
	text := strings.Join([]string{here.boot, here.namespace, here.address, here.root, ""}, "\n")
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return there, err
	}
	return here, unix.Flock(int(f.Fd()), unix.LOCK_SH)
}

// readBinding reads the file of the binding. Incomplete contents are returned as the zero binding,
// which is of no boot.
func readBinding(f *os.File) (binding, error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<16))
	if err != nil {
		return binding{}, err
	}
	lines := strings.Split(string(text), "\n")
	switch len(lines) {
	case 4: // an older podrun's
		return binding{boot: lines[0], namespace: lines[1], address: lines[2]}, nil
	case 5:
		return binding{boot: lines[0], namespace: lines[1], address: lines[2], root: lines[3]}, nil
	}
	return binding{}, nil
}

// OtherRoot returns the root directory to which the pods of a run directory belong in this boot, if it is known and
// another one than that of dirs; else "".
func OtherRoot(dirs layout.Dirs) string {
	f, err := os.Open(dirs.Binding())
	if err != nil {
		return ""
	}
	defer f.Close()
	there, err := readBinding(f)
	if err != nil || sameDir(there.root, dirs.Root) {
		return ""
	}
	if boot, err := sys.BootID(); err != nil || there.boot != boot {
		return ""
	}
	return there.root
}

// RootInUseError says that podruns use a root directory with another run directory, which has the locks of its pods.
type RootInUseError struct{ Root, Run string }

func (e *RootInUseError) Error() string {
	return fmt.Sprintf("the root directory %s is in use with the run directory %s", e.Root, e.Run)
}

// Hint says how to resolve the conflict.
func (e *RootInUseError) Hint() string {
	return fmt.Sprintf("use --run-dir %s, or another --root-dir too", e.Run)
}

// bindRoot binds the root directory to the run directory until unbind is called. All podruns that create or remove pods
// hold a shared lock of the file that records it. One with another run directory may change it if nobody else does. On
// a disk that is full before the file is there, nothing is bound, since podrun is to start there too.
func bindRoot(dirs layout.Dirs) (unbind func(), err error) {
	f, err := os.OpenFile(layout.RootBinding(dirs), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		there := ""
		err = owner.AfterForks(func() (err error) {
			there, err = tryToBindRoot(f, dirs.Run)
			return err
		})
		if err == nil {
			return func() { f.Close() }, nil
		}
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) && there != "" {
			err = &RootInUseError{Root: dirs.Root, Run: there}
		}
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return func() {}, nil
	}
	return nil, fmt.Errorf("binding the root directory: %w", err)
}

// tryToBindRoot fails with EWOULDBLOCK while podruns with the run directory there hold the lock, or one
// is just changing it.
func tryToBindRoot(f *os.File, here string) (there string, err error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<16))
	if err != nil {
		return "", err
	}
	there, whole := strings.CutSuffix(string(text), "\n")
	if whole && sameDir(there, here) {
		return there, nil
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return there, err
	}
	if err := f.Truncate(0); err != nil {
		return there, err
	}
	if _, err := f.WriteAt([]byte(here+"\n"), 0); err != nil {
		return there, err
	}
	return here, unix.Flock(int(f.Fd()), unix.LOCK_SH)
}
