package images_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/runtime/containerd/images/accounts"
	"podrun.io/podrun/internal/test/testimage"
)

// TestManyFindTheUsersOfAnImage looks up the users of an uncached image in many concurrent starts
// of several podruns.
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

// checkUsers looks up the image's user and another one.
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
	for name, want := range map[string]accounts.User{
		"worker:crew": {User: specs.User{UID: 7, GID: 11, AdditionalGids: []uint32{11, 12}}, GroupEntries: 4},
		"other":       {User: specs.User{UID: 9, GID: 10, AdditionalGids: []uint32{10, 12}}, GroupEntries: 4},
	} {
		if user, err := image.User(t.Context(), name); err != nil || !reflect.DeepEqual(user, want) {
			t.Errorf("user %s: %+v, %v; want %+v", name, user, err, want)
		}
	}
}

// TestNothingButFilesIsReadForUsers uses images that have, in place of the account files, FIFOs,
// which would block a reader, devices, whose opening may have an effect, and links.
func TestNothingButFilesIsReadForUsers(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := connect(t, start(t))
			for i, c := range []struct {
				files []testimage.Option
				user  string
				want  string
			}{
				{[]testimage.Option{testimage.FIFO("/etc/passwd")}, "worker", "not a regular file"},
				{[]testimage.Option{testimage.FIFO("/etc/group")}, "0:crew", "not a regular file"},
				{[]testimage.Option{testimage.Device("/etc/passwd", 511, 1<<19-1)}, "worker", "not a regular file"},
				{[]testimage.Option{testimage.File("/etc/passwd", 0o644, make([]byte, 11<<20))}, "worker", "too long"},
				{[]testimage.Option{testimage.Link("/etc/passwd", "/dev/zero"), testimage.Device("/dev/zero", 1, 5)}, "worker", "not a regular file"},
				{[]testimage.Option{testimage.Link("/etc/passwd", "/etc/worker"), testimage.File("/etc/worker", 0o644, []byte("worker:x:7:8::/:\n"))}, "worker", ""},
				{[]testimage.Option{testimage.Link("/etc/passwd", "/none")}, "7:8", ""},
			} {
				opts := append([]testimage.Option{testimage.User(c.user)}, c.files...)
				ref := fmt.Sprintf("busybox:%d", i)
				archive := daemontest.Archive(t, ref, opts...)
				found := make(chan error, 1)
				go func() { found <- findUser(t, s, archive, ref, c.user) }()
				var err error
				select {
				case err = <-found:
				case <-time.After(20 * time.Second):
					t.Fatalf("%d: it hangs", i)
				}
				if c.want == "" && err != nil || c.want != "" && (err == nil || strings.HasPrefix(err.Error(), "loading") || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%d: %v, want %q", i, err, c.want)
				}
			}
		})
	}
}

// findUser loads an image and finds a user in it.
func findUser(t *testing.T, s *images.Store, archive, ref, user string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := s.Load(t.Context(), f); err != nil {
		return fmt.Errorf("loading: %w", err)
	}
	found, err := s.Resolve(t.Context(), ref)
	if err != nil {
		return err
	}
	image, err := s.FindImage(t.Context(), found)
	if err == nil {
		_, err = image.User(t.Context(), user)
	}
	return err
}
