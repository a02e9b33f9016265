package printers

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/volume"
)

// Volumes prints the volumes of persistentVolumeClaims in one format.
type Volumes struct {
	Format        Format
	NoHeaders     bool
	AllNamespaces bool
}

// Print prints volumes once.
func (v Volumes) Print(out io.Writer, claims []volume.Claim) error {
	switch {
	case v.Format.rows():
		rows, err := v.rows(claims)
		if err != nil {
			return err
		}
		return Rows(out, rows...)
	case v.Format.isName():
		for _, claim := range claims {
			if _, err := fmt.Fprintln(out, "volume/"+claim.Name); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := v.Format.Marshal(map[string]any{"items": claims})
	if err == nil {
		_, err = cli.ForTerminal(out).Write(text)
	}
	return err
}

// rows returns volumes as rows of a table, after the headers unless NoHeaders is set.
func (v Volumes) rows(claims []volume.Claim) ([][]string, error) {
	var rows [][]string
	if header := v.header(); !v.NoHeaders {
		rows = append(rows, header)
	}
	for _, claim := range claims {
		row := v.row(claim)
		if v.Format.custom != nil {
			var err error
			if row, err = v.Format.customRow(claim); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (v Volumes) header() []string {
	if v.Format.custom != nil {
		return v.Format.headers()
	}
	header := []string{"NAME", "AGE", "PODS"}
	if v.Format.kind == "wide" {
		header = append(header, "PATH")
	}
	if v.AllNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	return header
}

func (v Volumes) row(claim volume.Claim) []string {
	row := []string{
		claim.Name,
		duration.HumanDuration(time.Since(claim.Made)),
		OrNone(strings.Join(claim.Pods, ",")),
	}
	if v.Format.kind == "wide" {
		row = append(row, claim.Path)
	}
	if v.AllNamespaces {
		row = append([]string{claim.Namespace}, row...)
	}
	return row
}
