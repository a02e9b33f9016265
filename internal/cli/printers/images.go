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

// outdatedImage is an image that is not as its registry has it, in YAML, JSON and templates.
type outdatedImage struct {
	Name           string `json:"name"`
	Digest         string `json:"digest"`
	RegistryDigest string `json:"registryDigest"`
	Used           bool   `json:"used"`
}

// Images prints images in one format. An archive can give an image any name.
func Images(out io.Writer, f Format, all []pod.StoredImage) error {
	images := []image{}
	for _, i := range all {
		images = append(images, image{i.Name, i.ID, i.Size, i.CreatedAt, i.Used, i.Pinned})
	}
	return imageTable[image]{
		header: []string{"IMAGE", "DIGEST", "SIZE", "AGE", "USED"}, row: imageRow,
		name: func(i image) string { return i.Name },
	}.print(out, f, images)
}

// OutdatedImages prints images that are not as their registries have them, in one format.
func OutdatedImages(out io.Writer, f Format, all []pod.OutdatedImage) error {
	images := []outdatedImage{}
	for _, i := range all {
		images = append(images, outdatedImage(i))
	}
	return imageTable[outdatedImage]{
		header: []string{"IMAGE", "DIGEST", "REGISTRY", "USED"}, name: func(i outdatedImage) string { return i.Name },
		row: func(i outdatedImage) []string {
			return []string{
				summary.PlainLine(i.Name), shortDigest(i.Digest), shortDigest(i.RegistryDigest), yesOrNo(i.Used),
			}
		},
	}.print(out, f, images)
}

// imageTable prints images.
type imageTable[T any] struct {
	header []string
	row    func(T) []string
	name   func(T) string
}

func (t imageTable[T]) print(out io.Writer, f Format, images []T) error {
	switch {
	case f.isName():
		for _, i := range images {
			if _, err := fmt.Fprintln(out, summary.PlainLine(t.name(i))); err != nil {
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
	rows := [][]string{t.header}
	if f.custom != nil {
		rows = [][]string{f.headers()}
	}
	for _, i := range images {
		row := t.row(i)
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
	return []string{
		summary.PlainLine(i.Name), shortDigest(i.ID),
		pod.Bytes(i.SizeBytes).String(), Age(i.CreatedAt, time.Now()), yesOrNo(i.Used),
	}
}

// shortDigest returns the first digits of the digest in the ID of an image.
func shortDigest(id string) string {
	digest := id[strings.LastIndex(id, "@")+1:]
	if _, hex, ok := strings.Cut(digest, ":"); ok && len(hex) > 12 {
		digest = hex[:12]
	}
	return summary.PlainLine(digest)
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
