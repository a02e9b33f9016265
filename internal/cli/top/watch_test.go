package top

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/test"
)

func TestSparkline(t *testing.T) {
	for name, c := range map[string]struct {
		all   []float64
		limit float64
		want  string
	}{
		"nothing yet":         {nil, 0, ""},
		"nothing used":        {[]float64{0, 0}, 0, "▁▁"},
		"not measured":        {[]float64{100, -1, 0}, 0, "█ ▁"},
		"to the highest":      {[]float64{0, 50, 100}, 0, "▁▅█"},
		"to the limit":        {[]float64{0, 50, 100}, 800, "▁▁▂"},
		"above the limit":     {[]float64{400, 800}, 100, "▅█"},
		"as much as is shown": {make([]float64, samples), 0, strings.Repeat("▁", samples)},
	} {
		var all [samples]mean
		for i, v := range c.all {
			if m := &all[samples-len(c.all)+i]; v >= 0 {
				m.add(v - 1)
				m.add(v + 1)
			}
		}
		got := sparkline(all, c.limit)
		if want := strings.Repeat(" ", samples-len([]rune(c.want))) + c.want; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// usageOf returns a measured container of a pod; its limits are 100m and 100Mi.
func usageOf(uid types.UID, container string, millicores, bytes int64) Usage {
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("100Mi")}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid}}
	p.Spec.Containers = []v1.Container{{Name: container, Resources: v1.ResourceRequirements{Limits: limits}}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: container}}
	return Usage{pod: p, name: container, millicores: millicores, after: cgroup.Usage{WorkingSet: bytes}}
}

// values returns what a line shows, with -1 for a blank.
func values(all [samples]mean) (out []float64) {
	for _, m := range all {
		v, is := m.value()
		if !is {
			v = -1
		}
		out = append(out, v)
	}
	return out
}

// TestRemember: a container keeps its last samples as long as it is the same one.
func TestRemember(t *testing.T) {
	var kept past
	for i := range samples + 5 {
		kept.remember([]Usage{usageOf("a", "main", int64(i), 50<<20)}, time.Now())
	}
	cpu, memory := values(kept.of["a/main"].cpu), values(kept.of["a/main"].memory)
	if cpu[0] != 5 || cpu[samples-1] != samples+4 || memory[0] != 50<<20 {
		t.Errorf("kept: %v, %v", cpu, memory)
	}
	kept.remember([]Usage{usageOf("b", "main", 100, 0)}, time.Now())
	if cpu := values(kept.of["b/main"].cpu); len(kept.of) != 1 || cpu[samples-2] != -1 || cpu[samples-1] != 100 {
		t.Errorf("kept of a new pod: %v", cpu)
	}
}

func TestWatchedTable(t *testing.T) {
	u := usageOf("a", "main", 100, 50<<20)
	var out strings.Builder
	var kept past
	kept.remember([]Usage{u}, time.Now())
	test.Must(t, printTable(&out, []Usage{u}, &kept, fit{columns: samples}, Options{AllNamespaces: true}))
	blank := strings.Repeat(" ", samples-1)
	want := []string{
		"NAMESPACE   POD   NAME   CPU(cores)   RECENT                           MEMORY(bytes)   RECENT",
		"default     web   main   100m         " + blank + "█   50Mi            " + blank + "▅",
	}
	if got := strings.Split(out.String(), "\n"); !slices.Equal(got[:2], want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), strings.Join(want, "\n"))
	}
}

// TestFit: whatever the width of the terminal is, from 60 characters on, every figure is on it.
func TestFit(t *testing.T) {
	long, short := usageOf("a", "main", 100, 50<<20), usageOf("b", "main", 100, 50<<20)
	long.pod.Name = strings.Repeat("checkout-", 7) + "12345"
	var kept past
	kept.remember([]Usage{long, short}, time.Now())
	for _, o := range []Options{{}, {AllNamespaces: true}} {
		for width := 60; width < 200; width++ {
			for _, all := range [][]Usage{{short}, {long, short}} {
				var out strings.Builder
				l := fitOf(all, width, o)
				test.Must(t, printTable(&out, all, &kept, l, o))
				for line := range strings.Lines(out.String()) {
					if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
						t.Errorf("%d characters of %d: %s", n, width, line)
					}
				}
				if len(all) == 2 && !strings.Contains(out.String(), "12345 ") {
					t.Errorf("no end of the name: %s", out.String())
				}
				if l.columns == 0 && (width > 119 || len(all) == 1 && width > 90) {
					t.Errorf("no lines at %d", width)
				}
			}
		}
	}
}

// TestShow: a table is printed in place of the one before, cut off at the size of the terminal.
func TestShow(t *testing.T) {
	var out strings.Builder
	text := "10:00:00\nPOD\na\nb\nc and more than fits\n"
	test.Must(t, show(&out, text, nil))
	if out.String() != text+"\n" {
		t.Errorf("without a terminal: %q", out.String())
	}
	for height, want := range map[int]string{
		6: "\x1b[H10:00:00\x1b[K\nPOD\x1b[K\na\x1b[K\nb\x1b[K\nc and more t\x1b[K\n\x1b[J",
		5: "\x1b[H10:00:00\x1b[K\nPOD\x1b[K\na\x1b[K\n2 more conta\x1b[K\n\x1b[J",
	} {
		out.Reset()
		test.Must(t, show(&out, text, func() (int, int) { return 12, height }))
		if out.String() != want {
			t.Errorf("%d lines: got %q, want %q", height, out.String(), want)
		}
	}
}
