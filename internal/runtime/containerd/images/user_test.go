package images_test

import (
	"os"
	"reflect"
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/testimage"
)

// TestManyFindTheUsersOfAnImage: many starts at once, of several podruns, find the users of an image that none of them
// has had before.
func TestManyFindTheUsersOfAnImage(t *testing.T) {
	const podruns, starts = 3, 8
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			archive, err := os.Open(daemontest.Archive(t, "busybox:1", testimage.User("worker:crew"),
				testimage.File("/etc/passwd", 0o644, []byte("root:x:0:0::/:\nworker:x:7:8::/:\nother:x:9:10::/:\n")),
				testimage.File("/etc/group", 0o644, []byte("root:x:0:\ncrew:x:11:\nmore:x:12:worker,other\n"))))
			if err != nil {
				t.Fatal(err)
			}
			defer archive.Close()
			ctx, c := d.Client(t)
			if _, err := c.Import(ctx, archive); err != nil { // not by podrun, which would look at once
				t.Fatal(err)
			}
			begin := make(chan struct{})
			var all sync.WaitGroup
			for range podruns {
				s := connect(t, d)
				for range starts {
					all.Go(func() {
						<-begin
						checkUsers(t, s)
					})
				}
			}
			close(begin)
			all.Wait()
		})
	}
}

// checkUsers finds the image's user, and another.
func checkUsers(t *testing.T, s *images.Store) {
	found, err := s.Resolve(t.Context(), "busybox:1")
	if err != nil {
		t.Error(err)
		return
	}
	image, err := s.FindImage(t.Context(), found)
	if err != nil {
		t.Error(err)
		return
	}
	for name, want := range map[string]specs.User{
		"worker:crew": {UID: 7, GID: 11, AdditionalGids: []uint32{11, 12}},
		"other":       {UID: 9, GID: 10, AdditionalGids: []uint32{10, 12}},
	} {
		if user, err := image.User(t.Context(), name); err != nil || !reflect.DeepEqual(user, want) {
			t.Errorf("user %s: %+v, %v; want %+v", name, user, err, want)
		}
	}
}
