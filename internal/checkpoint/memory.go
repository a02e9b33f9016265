package checkpoint

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"podrun.io/podrun/internal/pod"
)

// Memory is a Disk in memory, for tests. Its hook can make an operation fail, and PowerCut reverts
// the latest writes.
type Memory struct {
	mu    sync.Mutex
	files map[pod.UID]memoryFile
	// synced holds what survives a power failure.
	synced map[pod.UID]memoryFile
	// runs always survives one.
	runs   map[string][]byte
	writes int64
	hook   func(operation string, uid pod.UID) error
}

type memoryFile struct {
	data  []byte
	stamp Stamp
}

// NewMemory returns an empty disk. hook is called before each "write" and "remove" and can refuse
// it with an error; nil means no hook.
func NewMemory(hook func(operation string, uid pod.UID) error) *Memory {
	if hook == nil {
		hook = func(string, pod.UID) error { return nil }
	}
	return &Memory{
		files: map[pod.UID]memoryFile{}, synced: map[pod.UID]memoryFile{}, runs: map[string][]byte{}, hook: hook,
	}
}

// List implements Disk.
func (m *Memory) List() ([]pod.UID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.files)), nil
}

// Path implements Disk.
func (m *Memory) Path(uid pod.UID) string { return string(uid) }

// Stat implements Disk.
func (m *Memory) Stat(uid pod.UID) (Stamp, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.files[uid]
	if !ok {
		return Stamp{}, fs.ErrNotExist
	}
	return f.stamp, nil
}

// Read implements Disk.
func (m *Memory) Read(uid pod.UID) ([]byte, Stamp, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.files[uid]
	if !ok {
		return nil, Stamp{}, fs.ErrNotExist
	}
	return slices.Clone(f.data), f.stamp, nil
}

// Create implements Disk.
func (m *Memory) Create(uid pod.UID, data []byte) (Stamp, error) { return m.write(uid, data, true) }

// Write implements Disk.
func (m *Memory) Write(uid pod.UID, data []byte) (Stamp, error) { return m.write(uid, data, false) }

// WriteDurable implements Disk.
func (m *Memory) WriteDurable(uid pod.UID, data []byte) (Stamp, error) {
	stamp, err := m.write(uid, data, false)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.synced[uid] = m.files[uid]
	}
	return stamp, err
}

func (m *Memory) write(uid pod.UID, data []byte, fresh bool) (Stamp, error) {
	if err := m.hook("write", uid); err != nil {
		return Stamp{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.files[uid]; !there && !fresh {
		return Stamp{}, fs.ErrNotExist
	}
	m.writes++
	f := memoryFile{data: slices.Clone(data), stamp: Stamp{Inode: uint64(m.writes), Time: m.writes}}
	m.files[uid] = f
	return f.stamp, nil
}

// Remove implements Disk.
func (m *Memory) Remove(ctx context.Context, uid pod.UID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.hook("remove", uid); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, uid)
	delete(m.synced, uid)
	return nil
}

// Sweep implements Disk.
func (m *Memory) Sweep(context.Context) error { return nil }

// Corrupt replaces the content of a file, as a bad sector or a user does.
func (m *Memory) Corrupt(uid pod.UID, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	m.files[uid] = memoryFile{data: data, stamp: Stamp{Inode: uint64(m.writes), Time: m.writes}}
}

// Sync protects everything that was written so far from PowerCut.
func (m *Memory) Sync() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = maps.Clone(m.files)
}

// PowerCut reverts the writes since the last Sync, of those files for which lose
// returns true. It returns the files that have lost something and were there.
func (m *Memory) PowerCut(lose func(uid pod.UID) bool) (lost []pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(m.files)) {
		before, was := m.synced[uid]
		loses := lose(uid)
		if loses && m.files[uid].stamp != before.stamp {
			lost = append(lost, uid)
		}
		switch {
		case !loses:
		case was:
			m.files[uid] = before
		default:
			delete(m.files, uid)
		}
	}
	m.synced = maps.Clone(m.files)
	return lost
}

// RunPath implements Disk.
func (m *Memory) RunPath(name string) string { return name }

// RunNames implements Disk.
func (m *Memory) RunNames() ([]string, error) {
	all, err := m.ReadRuns()
	return slices.Sorted(maps.Keys(all)), err
}

// ReadRun implements Disk.
func (m *Memory) ReadRun(name string) ([]byte, error) {
	all, err := m.ReadRuns()
	return all[name], err
}

// ReadRuns returns all texts by name.
func (m *Memory) ReadRuns() (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.runs), nil
}

// WriteRun implements Disk.
func (m *Memory) WriteRun(name string, data []byte) error {
	if err := m.hook("write run", pod.UID(name)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[name] = slices.Clone(data)
	return nil
}

// RemoveRun implements Disk.
func (m *Memory) RemoveRun(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, name)
	return nil
}
