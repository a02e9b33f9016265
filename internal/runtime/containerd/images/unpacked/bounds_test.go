package unpacked

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"podrun.io/podrun/internal/runtime/containerd/images/accounts"
)

// TestBounds: users that authors invent do not fill podrun's memory.
func TestBounds(t *testing.T) {
	t.Parallel()
	f := NewFinder(nil, nil, nil)
	for i := range 10 * mostImages {
		f.users.cache.Put(strconv.Itoa(i), accounts.User{})
		f.cache.Put(strconv.Itoa(i), &Image{})
	}
	users, images := 0, 0
	for i := range 10 * mostImages {
		if _, there := f.users.cache.Get(strconv.Itoa(i)); there {
			users++
		}
		if _, there := f.cache.Get(strconv.Itoa(i)); there {
			images++
		}
	}
	if users != mostImages || images != mostImages {
		t.Errorf("%d users and %d images are remembered, want %d", users, images, mostImages)
	}
}

// TestLocks: one holds the lock of a key at a time, and nothing is kept of those that nobody holds.
func TestLocks(t *testing.T) {
	t.Parallel()
	var l locks
	unlock, err := l.lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("twice: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if unlock, err := l.lock(context.Background(), "a"); err == nil {
			unlock()
		}
	}()
	unlock()
	<-done
	if len(l.held) != 0 {
		t.Errorf("kept: %v", l.held)
	}
}
