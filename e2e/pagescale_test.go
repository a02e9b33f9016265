package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPageScale measures the page of 500 pods in a browser against that of one pod, and prints a table. It fails if
// something does not work, never because of a time. The pods wait for a file, so that they cost nothing but their rows.
func TestPageScale(t *testing.T) {
	if os.Getenv("PODRUN_SCALE") == "" {
		t.Skip("the scale is measured by make bench")
	}
	n := newNode(t)
	address := freeAddress(t)
	n.serve("--listen=" + address)
	b := newBrowser(t, n.path("chromium"))
	b.size(1280, 800)
	var interactive []float64
	rows := []string{
		"", "| pods | page interactive, ms | ratio to one pod | longest task of a minute, ms | heap of the page, MB |",
		strings.Repeat("| --- ", 5) + "|",
	}
	for _, count := range []int{1, 500} {
		var text strings.Builder
		for i := range count {
			fmt.Fprintf(&text, `apiVersion: v1
kind: Pod
metadata: {name: p%d, labels: {app: p%d}}
spec:
  containers: [{name: c, image: %q, imagePullPolicy: Never, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, hostPath: {path: %s, type: File}}]
---
`, i, i%7, box, n.path("absent"))
		}
		n.write("all.yaml", text.String())
		b.open("http://" + address + "/")
		b.until("document.querySelectorAll('#pods > tr[data-pod]').length", strconv.Itoa(count))
		// Each has been tried: what is measured is the page, not what serve does to start so many.
		b.until("[...document.querySelectorAll('#pods > tr[data-pod]')].filter((row) => !row.textContent.includes('next attempt')).length === 0", "true")
		var took []float64
		for range 5 {
			b.open("http://" + address + "/")
			b.until("document.querySelectorAll('#pods > tr[data-pod]').length", strconv.Itoa(count))
			took = append(took, decimal(t, b.text("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")))
		}
		slices.Sort(took)
		interactive = append(interactive, took[len(took)/2])
		b.until("document.getElementById('state').textContent", "Shown as it is now.")
		b.text("slowest = 0, new PerformanceObserver((all) => all.getEntries().forEach((e) => slowest = Math.max(slowest, e.duration))).observe({type: 'longtask'}), 0")
		time.Sleep(time.Minute)
		last := len(interactive) - 1
		rows = append(rows, fmt.Sprintf("| %d | %.0f | %.1f | %s | %.1f |", count, interactive[last], interactive[last]/interactive[0],
			b.text("Math.round(slowest)"), decimal(t, b.text("performance.memory.usedJSHeapSize"))/1e6))
	}
	t.Log(strings.Join(rows, "\n"))
}

func decimal(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	must(t, err)
	return v
}
