package printers

import (
	"fmt"
	"io"
	"strings"
	"time"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// image is an image in YAML, JSON and templates.
type image struct {
	Name      string    `json:"name"`
	ID        string    `json:"id"`
	SizeBytes int64     `json:"sizeBytes"`
	CreatedAt time.Time `json:"createdAt"`
	Used      bool      `json:"used"`
	Pinned    bool      `json:"pinned"`
}

// Images prints images in one format. An archive can give an image any name.
func Images(out io.Writer, f Format, all []pod.StoredImage) error {
	images := []image{}
	for _, i := range all {
		images = append(images, image{i.Name, i.ID, i.Size, i.CreatedAt, i.Used, i.Pinned})
	}
	switch {
	case f.isName():
		for _, i := range images {
			if _, err := fmt.Fprintln(out, summary.PlainLine(i.Name)); err != nil {
				return err
			}
		}
		return nil
	case !f.rows():
		text, err := f.Marshal(map[string]any{"images": images})
		if err == nil {
			_, err = cli.ForTerminal(out).Write(text)
		}
		return err
	}
	rows := [][]string{{"IMAGE", "DIGEST", "SIZE", "AGE", "USED"}}
	if f.custom != nil {
		rows = [][]string{f.headers()}
	}
	for _, i := range images {
		row := imageRow(i)
		if f.custom != nil {
			var err error
			if row, err = f.customRow(i); err != nil {
				return err
			}
		}
		rows = append(rows, row)
	}
	return Rows(out, rows...)
}

func imageRow(i image) []string {
	digest := i.ID[strings.LastIndex(i.ID, "@")+1:]
	if _, hex, ok := strings.Cut(digest, ":"); ok && len(hex) > 12 {
		digest = hex[:12]
	}
	used := "no"
	if i.Used {
		used = "yes"
	}
	return []string{
		summary.PlainLine(i.Name), summary.PlainLine(digest),
		pod.Bytes(i.SizeBytes).String(), Age(i.CreatedAt, time.Now()), used,
	}
}
