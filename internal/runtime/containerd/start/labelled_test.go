package start

import (
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
)

// TestLabelled: the files of a root filesystem have the label that the container asks for, and no option else changes.
func TestLabelled(t *testing.T) {
	t.Parallel()
	overlay := mount.Mount{Type: "overlay", Options: append(make([]string, 0, 8), "lowerdir=/a")}
	const files = "system_u:object_r:container_file_t:s0:c1,c2"
	if got := labelled(overlay, files); !slices.Equal(got, []string{"lowerdir=/a", `context="` + files + `"`}) {
		t.Errorf("overlay: %q", got)
	}
	if got := labelled(overlay, ""); !slices.Equal(got, []string{"lowerdir=/a"}) {
		t.Errorf("overlay without a label: %q", got)
	}
	if got := labelled(mount.Mount{Type: "bind", Options: []string{"ro"}}, files); !slices.Equal(got, []string{"ro"}) {
		t.Errorf("bind: %q", got)
	}
}
