package gc

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"

	"podrun.io/podrun/internal/pod"
)

// observation is the state of the images from which the images to remove are chosen.
type observation struct {
	images []pod.StoredImage
	// wanted are the full names of the images that manifests name, or that are needed for another
	// reason.
	wanted map[string]bool
	// lastUsed is when an image was last observed in use. One that never was counts as unused since
	// its creation on this machine.
	lastUsed map[string]time.Time
	now      time.Time
}

// unused returns the images that are not in use, wanted or pinned, and have not been for longer:
// the least recently used first, then by name.
func (s observation) unused(longer time.Duration) []pod.StoredImage {
	var out []pod.StoredImage
	for _, i := range s.images {
		if !i.Used && !i.Pinned && !s.wants(i) && s.now.Sub(s.since(i)) >= longer {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b pod.StoredImage) int {
		if c := s.since(a).Compare(s.since(b)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// wants reports whether the image is wanted by its name, or by its digest under another name.
func (s observation) wants(i pod.StoredImage) bool { return s.wanted[i.Name] || s.wanted[i.ID] }

// bogus is by how much a recorded time has to be in the future to be of a clock that was wrong: what it is of counts as
// unused for as long, so that it can go for space, but after all others and not for its age.
const bogus = time.Hour

// since returns the time since which the image has not been used.
func (s observation) since(i pod.StoredImage) time.Time {
	at := i.CreatedAt
	if used := s.lastUsed[i.Name]; used.After(at) {
		at = used
	}
	if at.After(s.now.Add(bogus)) {
		return s.now.Add(-bogus)
	}
	return at
}

// fullNames returns the names together with their full forms, as registries and the runtime have
// them. A name that is not a valid reference has no full form.
func fullNames(refs []string) map[string]bool {
	out := map[string]bool{}
	for _, ref := range refs {
		out[ref] = true
		if named, err := reference.ParseDockerRef(ref); err == nil {
			out[named.String()] = true
		}
	}
	return out
}

// usage is the usage of a file system.
type usage struct {
	capacity, available uint64 // bytes; available to users other than root
	files, filesFree    uint64 // inodes; files is 0 if the file system does not count them
}

// usedPercent returns the used space in percent, calculated like the kubelet's.
func (u usage) usedPercent() int {
	if u.capacity == 0 {
		return 0
	}
	return 100 - int(math.Ceil(float64(u.available)/float64(u.capacity)*100))
}

// fewFiles is the percentage of inodes that must be free, as for the kubelet.
const fewFiles = 5

// pressed returns what there is too little of if less than least percent are free; "" if there is
// enough.
func (u usage) pressed(least int) string {
	switch {
	case least <= 0 || u.capacity == 0:
		return ""
	case float64(u.available) < float64(u.capacity)*float64(least)/100:
		return fmt.Sprintf("%d MiB of %d MiB are free, less than %d%%", u.available>>20, u.capacity>>20, least)
	case u.files > 0 && float64(u.filesFree) < float64(u.files)*fewFiles/100:
		return fmt.Sprintf("%d of %d inodes are free, less than %d%%", u.filesFree, u.files, fewFiles)
	}
	return ""
}
