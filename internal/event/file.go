package event

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// mostBytes is the file size in bytes above which the file is rewritten with folded records, down
// to at most half of it.
const mostBytes = 1 << 20

// Read returns the stored records, newest last; none if there is no file.
func Read(dirs layout.Dirs) ([]Record, error) {
	data, err := os.ReadFile(dirs.Events())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	return trim(fold(decode(data))), nil
}

// Reader reads the events again only if the file has changed. Its methods may be called concurrently.
type Reader struct {
	dirs layout.Dirs

	mu   sync.Mutex
	read os.FileInfo // of the file when it was read; nil: it was not
	last []Record
}

// NewReader returns a Reader of the events below dirs.
func NewReader(dirs layout.Dirs) *Reader { return &Reader{dirs: dirs} }

// Read returns what the function Read does. The result must not be modified.
func (r *Reader) Read() ([]Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := os.Stat(r.dirs.Events())
	if err == nil && r.read != nil && os.SameFile(r.read, now) && r.read.Size() == now.Size() &&
		r.read.ModTime().Equal(now.ModTime()) {
		return r.last, nil
	}
	r.read = now // nil if there is no file
	if r.last, err = Read(r.dirs); err != nil {
		r.read = nil
	}
	return r.last, err
}

// add appends records to the file at path. Several processes may do so concurrently, and each may
// be killed while it does.
func add(path string, records []Record) error {
	text, err := encode(records)
	if err != nil {
		return fmt.Errorf("encoding events: %w", err)
	}
	f, err := lock(path)
	if err != nil {
		return fmt.Errorf("writing events: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("writing events: %w", err)
	}
	if whole, err := endsWhole(f, info.Size()); err != nil || !whole {
		text = append([]byte{'\n'}, text...) // ends an incomplete line
	}
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("writing events: %w", err)
	}
	if info.Size()+int64(len(text)) < mostBytes {
		return nil
	}
	return shrink(path)
}

// lock opens the file for appending and locks it. It tries again if another process replaced the
// file while it waited for the lock.
func lock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
	}
}

func endsWhole(f *os.File, size int64) (bool, error) {
	if size == 0 {
		return true, nil
	}
	var last [1]byte
	_, err := f.ReadAt(last[:], size-1)
	return last[0] == '\n', err
}

// shrink rewrites the file with folded and trimmed records. The caller holds the lock.
func shrink(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("shrinking events: %w", err)
	}
	records := trim(fold(decode(data)))
	text, err := encode(records)
	for err == nil && len(text) > mostBytes/2 {
		records = records[(len(records)+3)/4:] // long messages
		text, err = encode(records)
	}
	if err != nil {
		return fmt.Errorf("shrinking events: %w", err)
	}
	if err := sys.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("shrinking events: %w", err)
	}
	return nil
}
