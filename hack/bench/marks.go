package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// marks record when processes ran: each process creates a file in a directory that is bind mounted
// into its container, and inotify reports it. So the times depend neither on podrun nor on
// containerd.
type marks struct {
	dir string
	fd  *os.File
	at  chan mark
}

// mark is a file that a process created.
type mark struct {
	name string
	at   time.Time
}

// newMarks watches dir.
func newMarks(dir string) (*marks, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("creating an inotify instance: %w", err)
	}
	m := &marks{dir: dir, fd: os.NewFile(uintptr(fd), "inotify"), at: make(chan mark, 1024)}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE); err != nil {
		return nil, errors.Join(fmt.Errorf("watching %s: %w", dir, err), m.fd.Close())
	}
	go m.read()
	return m, nil
}

// Close ends the watch.
func (m *marks) Close() error { return m.fd.Close() }

func (m *marks) read() {
	defer close(m.at)
	buf := make([]byte, 64<<10)
	for {
		n, err := m.fd.Read(buf)
		now := time.Now()
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&rest[0]))
			end := unix.SizeofInotifyEvent + int(event.Len)
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:end]), "\x00")
			m.at <- mark{name, now}
			rest = rest[end:]
		}
	}
}

// wait returns when n marks whose names begin with prefix have been created, with the time of the
// last one.
func (m *marks) wait(ctx context.Context, prefix string, n int) (time.Time, error) {
	for {
		select {
		case mark, ok := <-m.at:
			if !ok {
				return time.Time{}, errors.New("the watch has ended")
			}
			if strings.HasPrefix(mark.name, prefix) {
				if n--; n == 0 {
					return mark.at, nil
				}
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("waiting for %d more marks %s*: %w", n, prefix, context.Cause(ctx))
		}
	}
}

// clear removes the marks of a round.
func (m *marks) clear(prefix string) error {
	files, err := filepath.Glob(filepath.Join(m.dir, prefix+"*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// command is the command of every measured container: it creates a mark with a random name and then
// sleeps. A replacement creates another mark.
func command(prefix string) []string {
	return []string{
		"sh",
		"-c",
		"read id </proc/sys/kernel/random/uuid; : >" + markMount + "/" + prefix + ".$id; exec sleep 1000000",
	}
}

// markMount is the path of the marks directory in the containers.
const markMount = "/marks"
