package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
)

// ElsewhereError says that the run directory's pods are in another containerd, or in another namespace of it. Those who
// look here only would clear away what is left of them, volumes too, and start each a second time.
type ElsewhereError struct {
	// Address and Namespace are of the containerd that has the pods; Address is a socket, or Embedded.
	Address, Namespace string
	// Run is the run directory, Note the file that says where its pods are.
	Run, Note string
}

func (e *ElsewhereError) Error() string {
	at := "the containerd at " + e.Address
	if e.Address == Embedded {
		at = "podrun's own containerd"
	}
	return fmt.Sprintf("the pods of %s are in namespace %s of %s", e.Run, e.Namespace, at)
}

// Hint says what to do about it.
func (e *ElsewhereError) Hint() string {
	return fmt.Sprintf("use that one, or end them there first: podrun down --all --containerd-address %s --containerd-namespace %s; if that containerd is gone for good, remove %s",
		e.Address, e.Namespace, e.Note)
}

// binding is where a run directory's pods are.
type binding struct{ address, namespace, boot string }

// is reports that both are the same namespace. A socket may be moved, so that another path is no other containerd.
func (p binding) is(other binding) bool {
	return p.namespace == other.namespace && (p.address == Embedded) == (other.address == Embedded)
}

// settle makes the run directory's pods those of one place, until leave. All podruns that make or end pods share a lock
// of the file that says which; whoever is elsewhere may change that when there are no others and nothing is left of pods.
func settle(dirs layout.Dirs, here binding, empty func() (bool, error)) (leave func(), err error) {
	f, err := os.OpenFile(dirs.Binding(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("settling in the run directory: %w", err)
	}
	for end := time.Now().Add(forkTime); ; time.Sleep(10 * time.Millisecond) {
		there, err := tryToSettle(f, here, empty)
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
			return nil, &ElsewhereError{Address: there.address, Namespace: there.namespace, Run: dirs.Run, Note: dirs.Binding()}
		}
		return nil, fmt.Errorf("settling in the run directory: %w", err)
	}
}

var errElsewhere = errors.New("pods are elsewhere")

// tryToSettle fails with errElsewhere if there are pods there, and with EWOULDBLOCK while podruns are, or one just settles.
func tryToSettle(f *os.File, here binding, empty func() (bool, error)) (there binding, err error) {
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

// readBinding reads what a file says; one that says nothing whole is of no boot.
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
