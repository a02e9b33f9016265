package unpacked

import (
	"github.com/containerd/containerd/v2/core/images"
	"github.com/distribution/reference"
)

// FullName returns the normalised reference: docker.io/library/busybox:latest for busybox.
func FullName(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

// ImageID returns the ID that a status shows: the name without a tag, and the digest.
func ImageID(i images.Image) string {
	named, err := reference.ParseNormalizedNamed(i.Name)
	if err != nil {
		return i.Target.Digest.String()
	}
	return named.Name() + "@" + i.Target.Digest.String()
}
