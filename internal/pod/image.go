package pod

import (
	"fmt"
	"time"
)

// Image is an image that is present and unpacked.
type Image struct {
	// Name is the reference under which the runtime stores it.
	Name string
	// ID is the identity with digest that the status shows.
	ID string
	// StopSignal is the stop signal in the image config, in the form SIGTERM; "" if it has none.
	StopSignal string
}

// StoredImage is an image as the runtime stores it.
type StoredImage struct {
	// Name is the full reference, ID the identity with digest that the status shows.
	Name, ID string
	// Size is the size of the content in bytes, compressed as it was fetched.
	Size      int64
	CreatedAt time.Time
	// Used reports that a container, running or not, or a volume of a pod uses the image.
	Used bool
	// Pinned reports that only a user may remove the image.
	Pinned bool
}

// OutdatedImage is an image whose name refers to another one in its registry.
type OutdatedImage struct {
	Name string
	// Digest is that of the image that is present, RegistryDigest that of the image in the registry.
	Digest, RegistryDigest string
	// Used reports that a container, running or not, or a volume of a pod uses the image that is present.
	Used bool
}

// Progress is the progress of an image pull.
type Progress struct {
	// Fetched is how many bytes of layers are present, fetched now or earlier. Total is the final
	// size in bytes; 0 until the registry has returned the manifest.
	Fetched, Total int64
	// Done is how many of the Layers are complete.
	Done, Layers int
	// Rate is the number of bytes per second that arrived in the last seconds.
	Rate int64
}

// HasTotal reports whether the registry has returned the image's manifest, so that Total is known.
func (p Progress) HasTotal() bool { return p.Total > 0 }

// String formats p for people, as in "12.3MB of 64.0MB, 8.1MB/s, 3 of 8 layers". It is "" until the
// total is known.
func (p Progress) String() string {
	if !p.HasTotal() {
		return ""
	}
	if p.Done == p.Layers {
		return fmt.Sprintf("%s fetched, unpacking", Bytes(p.Total))
	}
	return fmt.Sprintf("%s of %s, %s/s, %d of %d layers",
		Bytes(p.Fetched), Bytes(p.Total), Bytes(p.Rate), p.Done, p.Layers)
}

// Bytes is a size that String formats for people, in powers of 1000 as registries do.
type Bytes int64

// String formats the size with its unit, as in 12.3MB.
func (b Bytes) String() string {
	if b < 1000 {
		return fmt.Sprintf("%dB", int64(b))
	}
	value, unit := float64(b), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB"} {
		if value /= 1000; value < 999.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f%s", value, unit)
}
