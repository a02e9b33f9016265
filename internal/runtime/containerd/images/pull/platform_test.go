package pull_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
)

// TestPlatforms checks that an image for a platform which the machine's is compatible with is pulled, whoever fetches
// it, and that one which is only for others is refused with a reason of its own.
func TestPlatforms(t *testing.T) {
	compatible := map[string]string{"amd64": `"386"`, "arm64": `"arm","variant":"v7"`}[goruntime.GOARCH]
	if compatible == "" {
		t.Skip("no other platform is known to be compatible")
	}
	d := daemontest.Embedded(t)
	own := options(t, d)
	own.HostsDir = t.TempDir()
	if err := os.Mkdir(filepath.Join(own.HostsDir, "some.example"), 0o755); err != nil {
		t.Fatal(err)
	}
	for who, o := range map[string]images.Options{"containerd": options(t, d), "podrun": own} {
		t.Run(who, func(t *testing.T) {
			s := connectWith(t, d, "", o)
			h, digest := newHub(t, d, s)
			answer, err := http.Get(h.URL + "/v2/team/busybox/manifests/" + digest)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			manifest, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			for tag, arch := range map[string]string{"compatible": compatible, "other": `"s390x"`} {
				index := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":%d,"platform":{"os":"linux","architecture":%s}}]}`,
					imagespec.MediaTypeImageIndex, answer.Header.Get("Content-Type"), digest, len(manifest), arch)
				put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, h.URL+"/v2/team/busybox/manifests/"+tag, strings.NewReader(index))
				if err != nil {
					t.Fatal(err)
				}
				put.Header.Set("Content-Type", imagespec.MediaTypeImageIndex)
				done, err := http.DefaultClient.Do(put)
				if err != nil {
					t.Fatal(err)
				}
				if done.Body.Close(); done.StatusCode != http.StatusCreated {
					t.Fatal(done.Status)
				}
				_, err = s.Pull(t.Context(), strings.TrimSuffix(h.ref, "1")+tag)
				if tag == "compatible" && err != nil {
					t.Error(err)
				}
				if tag == "other" && (err == nil || fixOf(err) != "use an image that is built for linux/"+goruntime.GOARCH) {
					t.Errorf("%q, %v", fixOf(err), err)
				}
			}
			if _, err := s.PruneImages(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := s.DropFetched(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
