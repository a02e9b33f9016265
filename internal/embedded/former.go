package embedded

import (
	"os"
	"path/filepath"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// HasImages reports whether the embedded containerd of the directories, which need not run, has content of images.
func HasImages(d layout.Dirs) bool {
	dir := filepath.Join(d.Embedded().Data(), "io.containerd.content.v1.content", "blobs", "sha256")
	all, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer all.Close()
	some, _ := all.Readdirnames(1)
	return len(some) > 0
}
