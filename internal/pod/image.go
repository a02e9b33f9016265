package pod

import (
	"fmt"
	"time"
)

// Image is an image that is present and unpacked.
type Image struct {
	// Name is the reference under which the runtime keeps it.
	Name string
	// ID is the digest-qualified identity that status shows.
	ID string
	// StopSignal is what the image asks to be ended by, as SIGTERM is spelled; "": nothing.
	StopSignal string
}

// StoredImage is an image as the runtime keeps it.
type StoredImage struct {
	// Name is its full reference, ID the digest-qualified identity that status shows.
	Name, ID string
	// Size is that of the content, compressed as it was fetched, in bytes.
	Size      int64
	CreatedAt time.Time
	// Used says that a container, running or not, or a volume of a pod is made of it.
	Used bool
	// Pinned says that it may only be removed by hand.
	Pinned bool
}

// Progress is how far a pull is.
type Progress struct {
	// Fetched are the bytes of layers that are there, fetched now or before; Total is what there will be, 0
	// until the registry has said what the image is made of.
	Fetched, Total int64
	// Done of Layers are whole.
	Done, Layers int
	// Rate is how many bytes a second came in the last seconds.
	Rate int64
}

// HasTotal says that the registry has said what the image is made of.
func (p Progress) HasTotal() bool { return p.Total > 0 }

// String is p for people, as "12.3MB of 64.0MB, 8.1MB/s, 3 of 8 layers".
func (p Progress) String() string {
	if !p.HasTotal() {
		return ""
	}
	if p.Done == p.Layers {
		return fmt.Sprintf("%s fetched, unpacking", Bytes(p.Total))
	}
	return fmt.Sprintf("%s of %s, %s/s, %d of %d layers", Bytes(p.Fetched), Bytes(p.Total), Bytes(p.Rate), p.Done, p.Layers)
}

// Bytes is a size that is written for people, in powers of 1000 as registries do.
type Bytes int64

// String is the size with its unit, as 12.3MB.
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
