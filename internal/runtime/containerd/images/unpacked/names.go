package unpacked

import (
	"strconv"
	"strings"
	"unicode"

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

// Quoted returns a name of an image as errors show it: quoted if it has characters that are not
// printable, with which it could pretend to be something else. An archive can give an image any
// name.
func Quoted(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// ImageID returns the ID that a status shows: the name without a tag, and the digest.
func ImageID(i images.Image) string {
	named, err := reference.ParseNormalizedNamed(i.Name)
	if err != nil {
		return i.Target.Digest.String()
	}
	return named.Name() + "@" + i.Target.Digest.String()
}
