package connection

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint/layout"
)

// ElsewhereError says that the run directory's pods are in another containerd, or in another of its
// namespaces. A podrun that only inspects its own containerd would remove what is left of these
// pods, including volumes, and start each pod a second time.
type ElsewhereError struct {
	// Address and Namespace are those of the containerd that has the pods. Address is a socket, or
	// Embedded.
	Address, Namespace string
	// Run is the run directory. Note is the file that records where its pods are.
	Run, Note string
}

func (e *ElsewhereError) Error() string {
	at := "the containerd at " + e.Address
	if e.Address == Embedded {
		at = "podrun's own containerd"
	}
	return fmt.Sprintf("the pods of %s are in namespace %s of %s", e.Run, e.Namespace, at)
}

// Hint says how to resolve the conflict.
func (e *ElsewhereError) Hint() string {
	return fmt.Sprintf("use that containerd, or remove the pods there first: "+
		"podrun down --all --containerd-address %s --containerd-namespace %s; "+
		"if that containerd no longer exists, remove %s",
		e.Address, e.Namespace, e.Note)
}

// binding records which containerd, and which namespace of it, has the pods of a run directory, and
// in which boot.
type binding struct{ address, namespace, boot string }

// is reports that both are the same namespace of the same containerd. Socket paths are not
// compared, because a socket may be moved: another path need not be another containerd.
func (p binding) is(other binding) bool {
	return p.namespace == other.namespace && (p.address == Embedded) == (other.address == Embedded)
}

// bind binds the run directory to one containerd namespace until unbind is called. All podruns
// that create or remove pods hold a shared lock of the binding's file. A podrun with another
// binding may change it only if nobody else holds the lock and no pods are left.
func bind(dirs layout.Dirs, here binding, empty func() (bool, error)) (unbind func(), err error) {
	f, err := os.OpenFile(dirs.Binding(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("binding the run directory to containerd: %w", err)
	}
	for end := time.Now().Add(owner.ForkTime); ; time.Sleep(10 * time.Millisecond) {
		there, err := tryToBind(f, here, empty)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if busy := errors.Is(err, unix.EWOULDBLOCK); busy && time.Now().Before(end) {
			continue
		} else if busy && there.boot == here.boot {
			err = errElsewhere
		}
		f.Close()
		if errors.Is(err, errElsewhere) {
			return nil, &ElsewhereError{
				Address:   there.address,
				Namespace: there.namespace,
				Run:       dirs.Run,
				Note:      dirs.Binding(),
			}
		}
		return nil, fmt.Errorf("binding the run directory to containerd: %w", err)
	}
}

var errElsewhere = errors.New("pods are elsewhere")

// tryToBind fails with errElsewhere if there are pods with another binding, and with EWOULDBLOCK
// while other podruns hold the lock or one is just changing the binding.
func tryToBind(f *os.File, here binding, empty func() (bool, error)) (there binding, err error) {
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
		if free, err := empty(); err != nil {
			return there, err
		} else if !free {
			return there, errElsewhere
		}
	}
	if err := f.Truncate(0); err != nil {
		return there, err
	}
	if _, err := f.WriteAt([]byte(here.boot+"\n"+here.namespace+"\n"+here.address+"\n"), 0); err != nil {
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
	if len(lines) != 4 {
		return binding{}, nil
	}
	return binding{boot: lines[0], namespace: lines[1], address: lines[2]}, nil
}
