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

// observation is what is known of the images when it is judged which may go.
type observation struct {
	images []pod.StoredImage
	// wanted are those that manifests name, or that are kept for another reason, by full name.
	wanted map[string]bool
	// lastUsed says when an image was last seen in use; one that never was is as old as it is here.
	lastUsed map[string]time.Time
	now      time.Time
}

// unused are the images that nobody uses, wants or has pinned and nobody has used for that long: the least
// recently used first, and of those the oldest.
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

// wants reports that the image is wanted by its name, or by its digest under another.
func (s observation) wants(i pod.StoredImage) bool { return s.wanted[i.Name] || s.wanted[i.ID] }

// since is from when on the image is not used.
func (s observation) since(i pod.StoredImage) time.Time {
	at := i.CreatedAt
	if used := s.lastUsed[i.Name]; used.After(at) {
		at = used
	}
	return at
}

// fullNames are images' names as registries and the runtime know them; one that is no reference is found as
// it is.
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

// usage is how full a file system is.
type usage struct {
	capacity, available uint64 // bytes; available to others than root
	files, filesFree    uint64 // inodes; 0 files: it does not count them
}

// usedPercent is how much of the space is taken, as the kubelet counts it.
func (u usage) usedPercent() int {
	if u.capacity == 0 {
		return 0
	}
	return 100 - int(math.Ceil(float64(u.available)/float64(u.capacity)*100))
}

// fewFiles is the percentage of inodes that has to be free, as the kubelet has it.
const fewFiles = 5

// pressed says what there is too little of, when less than least percent are free; "" when all is well.
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
