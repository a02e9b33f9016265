// Package pidfd tells of the ends of processes that are not podrun's children. The kernel tells it,
// through process file descriptors, so nothing is polled and no event can be lost.
//
// The package does not tell how a process ended. Begin reading at Watcher.
package pidfd

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Watcher watches processes. It holds one file descriptor for each of them. The zero value is ready
// for use; Close must be called when it is not used any more.
type Watcher struct {
	mu      sync.Mutex
	epoll   *os.File // nil before the first Watch
	number  int      // epoll's file descriptor; File.Fd would make it blocking
	done    chan struct{}
	watched map[int32]func() // what to call, by process file descriptor
	closed  bool
}

// open makes the Watcher ready. The caller holds mu.
func (w *Watcher) open() error {
	switch {
	case w.closed:
		return os.ErrClosed
	case w.epoll != nil:
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that Go's own poller waits for it
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "epoll")
	if err := f.SetReadDeadline(time.Time{}); err != nil { // Go's poller could not take it: nothing would be noticed
		f.Close()
		return err
	}
	w.epoll, w.number = f, fd
	w.done, w.watched = make(chan struct{}), map[int32]func(){}
	go w.run()
	return nil
}

// Watch calls ended once when the process pid has ended, which may be before its parent knows. ended
// must not block. Watch returns false, and never calls ended, if there is no such process, or if the
// kernel cannot watch it.
func (w *Watcher) Watch(pid int, ended func()) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if w.open() != nil || unix.EpollCtl(w.number, unix.EPOLL_CTL_ADD, fd, &event) != nil {
		_ = unix.Close(fd)
		return false
	}
	w.watched[int32(fd)] = ended
	return true
}

// run calls what is to be called, until the Watcher is closed.
func (w *Watcher) run() {
	defer close(w.done)
	raw, err := w.epoll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		if err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		}); err != nil {
			return // closed
		}
		for _, e := range events[:n] {
			if ended := w.forget(e.Fd); ended != nil {
				ended()
			}
		}
	}
}

// forget closes the file descriptor of a process, and returns what is to be called.
func (w *Watcher) forget(fd int32) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended, ok := w.watched[fd]
	if ok {
		delete(w.watched, fd)
		_ = unix.Close(int(fd)) // which takes it out of epoll too
	}
	return ended
}

// Close ends the watch. No function is called after it has returned.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.epoll == nil {
		return nil
	}
	err := w.epoll.Close()
	w.mu.Unlock()
	<-w.done
	w.mu.Lock()
	for fd := range w.watched {
		_ = unix.Close(int(fd))
	}
	clear(w.watched)
	w.epoll = nil
	return err
}
