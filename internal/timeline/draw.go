package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// Document is the JSON form.
type Document struct {
	Items []Span `json:"items"`
}

// JSON returns the spans as JSON.
func JSON(all []Span) ([]byte, error) {
	text, err := json.MarshalIndent(Document{all}, "", "  ")
	return append(text, '\n'), err
}

// CheckFile returns an error if the ending of a file's name is not one of those that File knows.
func CheckFile(name string) error {
	if ext := filepath.Ext(name); ext != ".svg" && ext != ".json" {
		return fmt.Errorf("%q: the name must end with .svg or .json", name)
	}
	return nil
}

// File returns the spans in the form that the ending of a file's name says.
func File(name string, all []Span, now time.Time) ([]byte, error) {
	if filepath.Ext(name) == ".json" {
		return JSON(all)
	}
	return SVG(all, now), nil
}

// The measures of the drawing, in pixels.
const (
	rowHeight  = 20
	labelWidth = 480
	barsWidth  = 600
	timeWidth  = 100
)

// style has the colors for light and dark. A drawing in a page follows what its reader prefers.
const style = `<style>
svg{background:#fff;font:12px sans-serif}text{fill:#222}rect{fill:#9ab}.critical{fill:#c60}.failed{stroke:#c00;stroke-width:2}
.waiting{fill-opacity:.4}
@media(prefers-color-scheme:dark){svg{background:#181818}text{fill:#ddd}rect{fill:#567}.critical{fill:#e80}}
</style>
`

// SVG returns the spans as a drawing, a row for each. It has no script, and what others named is text in it.
func SVG(all []Span, now time.Time) []byte {
	begin, whole := bounds(all, now)
	all = speaking(all)
	var out bytes.Buffer
	height := rowHeight * (len(all) + 2)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" role="img">`+"\n",
		labelWidth+barsWidth+timeWidth, height)
	out.WriteString(style)
	fmt.Fprintf(&out, "<text x=\"8\" y=\"14\">%s from %s; orange: the critical path</text>\n",
		duration(whole), begin.UTC().Format(time.RFC3339))
	for i, s := range all {
		y := rowHeight * (i + 1)
		x, width := scale(s.Begin.Sub(begin), whole), scale(s.until(now).Sub(s.Begin), whole)
		label := s.label()
		title := label
		if s.Error != "" {
			title += ": " + s.Error
		}
		fmt.Fprintf(&out, "<g><title>%s</title>", escape(title))
		fmt.Fprintf(&out, `<text x="8" y="%d">%s</text>`, y+14, escape(short(label)))
		fmt.Fprintf(&out, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`,
			s.class(), labelWidth+x, y+3, max(width, 1), rowHeight-6)
		fmt.Fprintf(&out, `<text x="%d" y="%d">%s</text></g>`+"\n",
			labelWidth+barsWidth+8, y+14, duration(s.until(now).Sub(s.Begin)))
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func scale(d, whole time.Duration) float64 { return barsWidth * float64(d) / float64(whole) }

// class returns the classes of a span's bar. Its words are podrun's own.
func (s Span) class() string {
	class := string(s.Kind)
	if s.Critical {
		class += " critical"
	}
	if s.Error != "" {
		class += " failed"
	}
	return class
}

// label says what a span is.
func (s Span) label() string {
	text := s.Namespace + "/" + s.Pod
	if s.Container != "" {
		text += " " + s.Container
	}
	text += " " + string(s.Kind)
	if s.Detail != "" {
		text += " " + s.Detail
	}
	return text
}

// bounds returns when the first span begins and how long it is until the last ends, which is not 0.
func bounds(all []Span, now time.Time) (begin time.Time, whole time.Duration) {
	var end time.Time
	for i, s := range all {
		if i == 0 || s.Begin.Before(begin) {
			begin = s.Begin
		}
		end = later(end, s.until(now))
	}
	return begin, max(end.Sub(begin), time.Millisecond)
}

// escape returns text for an XML document: without what is markup there, or not allowed at all.
func escape(text string) string { return html.EscapeString(plain(text)) }

// plain replaces what is not printable, so that nothing in a name controls a terminal or breaks a document.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// short returns as much of a label as has room.
func short(label string) string {
	const most = 74
	if runes := []rune(label); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return label
}

func duration(d time.Duration) string { return d.Round(time.Millisecond).String() }
