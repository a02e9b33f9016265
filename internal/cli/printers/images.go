package printers

import (
	"io"
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Images prints a table of images.
func Images(out io.Writer, all []pod.StoredImage) error {
	rows := [][]string{{"IMAGE", "DIGEST", "SIZE", "AGE", "USED"}}
	for _, i := range all {
		digest := i.ID[strings.LastIndex(i.ID, "@")+1:]
		if _, hex, ok := strings.Cut(digest, ":"); ok && len(hex) > 12 {
			digest = hex[:12]
		}
		used := "no"
		if i.Used {
			used = "yes"
		}
		rows = append(rows, []string{i.Name, digest, pod.Bytes(i.Size).String(), Age(i.CreatedAt, time.Now()), used})
	}
	return Rows(out, rows...)
}
