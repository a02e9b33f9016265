package cgroup

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMostShares: each weight's shares have that weight, and one more does not.
func TestMostShares(t *testing.T) {
	t.Parallel()
	for weight := uint64(1); weight < 10_000; weight++ {
		if most := mostShares(weight); weightOf(most) != weight || weightOf(most+1) <= weight {
			t.Fatalf("weight %d: %d shares weigh %d, one more %d", weight, most, weightOf(most), weightOf(most+1))
		}
	}
	for weight, want := range map[uint64]uint64{0: 2, 1: 2, 17: 102, 45: 367, 100: 1024, 10_000: 262_144, 20_000: 262_144} {
		if got := mostShares(weight); got != want {
			t.Errorf("weight %d: %d shares, want %d", weight, got, want)
		}
	}
}

// TestSumWeights: a class weighs about as much as one pod that requests what its pods request together.
func TestSumWeights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pods   int
		shares uint64
		within float64
	}{{1, 2, 0}, {100, 2, 0.01}, {100, 10, 0.15}, {100, 51, 0.15}, {10, 102, 0.15}, {4, 256, 0.02}, {8, 4096, 0.01}, {3, 262_144, 0}} {
		for _, class := range []string{"class", "class.slice"} {
			t.Run(fmt.Sprintf("%d of %d in %s", c.pods, c.shares, class), func(t *testing.T) {
				t.Parallel()
				f := &fakeSystemd{}
				tree := &Tree{unified: t.TempDir(), units: t.TempDir(), systemd: func(ctx context.Context, do func(context.Context, units) error) error {
					return do(ctx, units{f.start, f.set, f.stop, f.get})
				}}
				dir := filepath.Join(tree.unified, class)
				put(t, filepath.Join(dir, "other", "cpu.weight"), "10000\n")
				put(t, filepath.Join(dir, "cpu.weight"), "100\n")
				for i := range c.pods {
					put(t, filepath.Join(dir, fmt.Sprint("pod", i), "cpu.weight"), fmt.Sprintln(weightOf(c.shares)))
				}
				if err := tree.SumWeights("/"+class, "pod"); err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(filepath.Join(dir, "cpu.weight"))
				if err != nil {
					t.Fatal(err)
				}
				var got uint64
				if _, err := fmt.Sscan(string(text), &got); err != nil {
					t.Fatal(err)
				}
				want := weightOf(uint64(c.pods)*c.shares + lowestShares)
				if off := math.Abs(float64(got)-float64(want)) / float64(want); off > c.within {
					t.Errorf("weight %d; one pod's %d", got, want)
				}
				if strings.HasSuffix(class, sliceSuffix) && !slices.Equal(f.calls, []string{fmt.Sprintf("set %s CPUWeight=%d", class, got)}) {
					t.Errorf("systemd is told %q, the kernel %d", f.calls, got)
				}
			})
		}
	}
}
