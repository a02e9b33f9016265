package nodeinfo

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// versionEvery is how often containerd is asked for its version, as long as somebody looks, and versionTimeout how
	// long it may take.
	versionEvery   = time.Minute
	versionTimeout = 3 * time.Second
)

// version is that of containerd, which may hang and may be replaced: nobody waits for the answer.
type version struct {
	ask func(context.Context) (string, error)

	mu    sync.Mutex
	text  string
	asked time.Time
}

// now returns the last answer; "" if there is none.
func (v *version) now() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := time.Now(); v.ask != nil && now.Sub(v.asked) >= versionEvery {
		v.asked = now
		go v.update()
	}
	return v.text
}

// update asks.
func (v *version) update() {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	text, err := v.ask(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.text = text; err != nil {
		v.text = ""
	}
}

// kernel returns the version of the kernel; "" if it is not known.
func kernel() string {
	var of unix.Utsname
	if unix.Uname(&of) != nil {
		return ""
	}
	return unix.ByteSliceToString(of.Release[:])
}
