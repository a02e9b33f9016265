package e2e

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// cell is how many pixels of a page, across and down, are one of the picture that is kept of it.
const cell = 8

// plain makes what changes from run to run, and with the age of a pod, the same: numbers, names of the machine and of temporary
// files, the log, lines, and whether the page is longer than the window.
const plain = `(() => {
	const text = document.querySelector("main").innerText;
	if (!text.includes("CrashLoopBackOff") || !text.includes("next attempt in")) return "it runs just now, or is about to";
	source?.close();
	changed.clear();
	const all = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let node; node = all.nextNode();) node.data = node.data.replace(/\/tmp\/\S*\/manifests/g, "/etc/pods").replace(/[0-9]+/g, "0");
	for (const dd of document.querySelectorAll("#node > dd, #events td")) dd.textContent = "0";
	for (const e of document.querySelectorAll("td.number, td.text, .happened > li, td.wide, #story dd")) e.textContent = "0";
	for (const e of document.querySelectorAll(".spark, .bar, .mark, .legend > *, li ~ li, #events tr ~ tr")) e.remove();
	document.getElementById("log")?.replaceChildren("log");
	document.getElementById("lines")?.replaceChildren();
	document.documentElement.style.overflow = "hidden";
	scrollTo(0, 0);
	return "done";
})()`

// pictures: the pages look as the pictures in testdata/pictures, but for what changes from run to run. PODRUN_UPDATE=1 keeps
// new ones.
func (s *sight) pictures(t *testing.T) {
	b := s.b
	for name, path := range map[string]string{"pods": "", "pod": "pod/default/sick-n"} {
		for _, scheme := range []string{"light", "dark"} {
			b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
			for _, width := range []int{390, 1280, 2560} {
				one := fmt.Sprintf("%s-%s-%d", name, scheme, width)
				b.size(width, 800)
				got := s.cellsOf(path, one)
				file := filepath.Join("testdata", "pictures", one+".png")
				if os.Getenv("PODRUN_UPDATE") == "1" {
					out, err := os.Create(file)
					must(t, err)
					must(t, png.Encode(out, got))
					must(t, out.Close())
					continue
				}
				in, err := os.Open(file)
				must(t, err)
				want, err := png.Decode(in)
				must(t, err)
				must(t, in.Close())
				part := differs(got, want)
				if part > 0.2 {
					b.picture("differs-" + one)
					t.Errorf("%s: %.1f %% of what is drawn looks different: %q", one, part*100, b.text("document.body.innerText"))
				}
			}
		}
	}
	b.size(1200, 800)
}

// cellsOf opens a page and returns its picture, without what changes from run to run.
func (s *sight) cellsOf(path, name string) *image.Gray {
	s.b.open(s.address + path)
	s.b.until("document.getElementById('state').textContent", "Shown as it is now.")
	s.b.until(plain, "done")
	return cells(s.b.picture(name))
}

// cells returns a picture in grey, each pixel the mean of a cell.
func cells(of image.Image) *image.Gray {
	size := of.Bounds().Size().Div(cell)
	out := image.NewGray(image.Rectangle{Max: size})
	for y := range size.Y {
		for x := range size.X {
			sum := 0
			for i := range cell * cell {
				sum += int(color.GrayModel.Convert(of.At(x*cell+i%cell, y*cell+i/cell)).(color.Gray).Y)
			}
			out.SetGray(x, y, color.Gray{Y: uint8(sum / cell / cell)})
		}
	}
	return out
}

// differs returns which part of what is drawn in two pictures is different; all of it if their sizes are.
func differs(got *image.Gray, want image.Image) float64 {
	if got.Bounds() != want.Bounds() {
		return 1
	}
	const clearly = 24
	apart := func(a, b int) bool { return max(a-b, b-a) > clearly }
	paper, drawn, n := int(got.GrayAt(0, 0).Y), 0, 0
	for y := range got.Rect.Max.Y {
		for x := range got.Rect.Max.X {
			a, b := int(got.GrayAt(x, y).Y), int(color.GrayModel.Convert(want.At(x, y)).(color.Gray).Y)
			if apart(a, paper) || apart(b, paper) {
				drawn++
			}
			if apart(a, b) {
				n++
			}
		}
	}
	return float64(n) / float64(max(drawn, 1))
}
