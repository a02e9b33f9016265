package printers

import (
	"io"
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// Images prints a table of images. An archive can give an image any name.
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
		rows = append(rows, []string{
			summary.PlainLine(i.Name), summary.PlainLine(digest),
			pod.Bytes(i.Size).String(), Age(i.CreatedAt, time.Now()), used,
		})
	}
	return Rows(out, rows...)
}
