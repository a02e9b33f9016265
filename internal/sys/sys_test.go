package sys

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/test"
)

// TestLockDirSurvivesRemoval: holders that remove the locked directory never let two holders in at
// the same time.
func TestLockDirSurvivesRemoval(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	mark := filepath.Join(t.TempDir(), "inside")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				lock, err := LockDir(dir, 0o700)
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.Mkdir(mark, 0o700); err != nil {
					t.Errorf("two at once: %v", err)
				}
				os.Remove(mark)
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
				lock.Unlock()
			}
		})
	}
	wg.Wait()
}

// TestTryLockExisting: it neither waits nor creates anything.
func TestTryLockExisting(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	if _, err := TryLockExisting(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	held, err := LockDir(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLockExisting(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("a locked directory: %v", err)
	}
	held.Unlock()
	lock, err := TryLockExisting(dir)
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
}

// TestTryLockDir: it never waits, and a holder that removes the directory lets the next one in.
func TestTryLockDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	held, err := TryLockDir(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if held.Path() != dir {
		t.Errorf("path %s", held.Path())
	}
	if _, err := TryLockDir(dir, 0o700); !errors.Is(err, ErrLocked) {
		t.Errorf("locked: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	next, err := TryLockDir(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	held.Unlock()
	if _, err := TryLockDir(dir, 0o700); !errors.Is(err, ErrLocked) {
		t.Errorf("locked by the next one: %v", err)
	}
	next.Unlock()
	again, err := TryLockDir(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	again.Unlock()
	if _, err := TryLockDir(filepath.Join(dir, "none", "d"), 0o700); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nowhere: %v", err)
	}
}

func TestLockExistingMissing(t *testing.T) {
	if _, err := LockExisting(filepath.Join(t.TempDir(), "no")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("error %v", err)
	}
}

func TestWriteFileReplacesAndKeepsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, want := range []string{"one", "two"} {
		// What a cut-off writer left must not matter.
		if err := os.WriteFile(path+".tmp", []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o666 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if _, err := os.Lstat(path + ".tmp"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the temporary file is still there")
	}
}

// TestWriteFileBesideOthers: concurrent writers of the same file all succeed, and the content is
// that of one of them.
func TestWriteFileBesideOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	var writing sync.WaitGroup
	for i := range 8 {
		writing.Go(func() {
			data := bytes.Repeat([]byte{'a' + byte(i)}, 1000*(i+1))
			for range 50 {
				if err := WriteFile(path, data, 0o600); err != nil {
					t.Error(err)
					return
				}
				got, err := os.ReadFile(path)
				if err != nil || len(got) == 0 || len(got) != 1000*int(got[0]-'a'+1) || bytes.Count(got, got[:1]) != len(got) {
					t.Errorf("read %d bytes: %v", len(got), err)
					return
				}
			}
		})
	}
	writing.Wait()
}

func TestBootID(t *testing.T) {
	a, err := BootID()
	if err != nil || len(a) != 36 {
		t.Fatalf("%q, %v", a, err)
	}
}

func TestElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for what, change := range map[string]func() error{
		"removed":  func() error { return os.Remove(path) },
		"replaced": func() error { return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path)) },
	} {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if Elsewhere(f, path) {
			t.Errorf("before it is %s it is elsewhere", what)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if !Elsewhere(f, path) {
			t.Errorf("when it is %s it is not elsewhere", what)
		}
	}
}

// TestWaitForTheDisk: what outlives the boot waits until its content is on the disk, and what does not never waits.
func TestWaitForTheDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for name, write := range map[string]func(string, []byte, os.FileMode) error{
		"WriteFile": WriteFile, "WriteDurable": WriteDurable, "ReplaceFile": ReplaceFile,
		"ChangedFile": func(path string, data []byte, mode os.FileMode) error {
			return (&ChangedFile{Path: path}).Write(data, mode)
		},
	} {
		err := test.WithoutSync(t, func() error { return write(path, []byte(name), 0o600) })
		if waits := name == "WriteFile" || name == "WriteDurable"; waits != errors.Is(err, unix.EIO) || !waits && err != nil {
			t.Errorf("%s on a disk that refuses each sync: %v", name, err)
		}
	}
}

// TestRemovedForGood: a removal is synced also by a call that finds it done, and also where the directory is gone.
func TestRemovedForGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range []string{dir + "/file", dir + "/gone/file"} {
		if err := test.WithoutSync(t, func() error { return RemoveDurable(path) }); !errors.Is(err, unix.EIO) {
			t.Errorf("%s, on a disk that refuses each sync: %v", path, err)
		}
		if err := RemoveDurable(path); err != nil {
			t.Error(err)
		}
	}
	if err := SyncDir("/proc"); err != nil { // no directory of this file system can be synced
		t.Error(err)
	}
}
