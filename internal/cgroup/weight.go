package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// The limits of a CPU weight in terms of version 1.
const lowestShares, highestShares = 2, 262_144

// weightOf converts a CPU weight in terms of version 1 to version 2's. It is not linear: it maps the lowest, the usual
// and the highest weight to each other. So weights of version 2 cannot be added.
func weightOf(shares uint64) uint64 { return cgroup2.ConvertCPUSharesToCgroupV2Value(shares) }

// mostShares is the inverse of weightOf: the highest of the shares that have the weight.
func mostShares(weight uint64) uint64 {
	switch {
	case weight <= 1:
		return lowestShares
	case weight >= weightOf(highestShares):
		return highestShares
	}
	// With l, the logarithm of the shares to base 2, weightOf returns 10^((l*l + 125*l)/612 - 7/34), rounded up.
	const half = 125.0 / 2
	l := math.Sqrt(half*half+612*(math.Log10(float64(weight))+7.0/34)) - half
	shares := uint64(math.Exp2(l))
	if weightOf(shares+1) <= weight { // shares is just below a whole number
		shares++
	}
	return shares
}

// likelyShares returns what has the weight, in the middle between the fewest shares and the most: few shares have
// coarse weights, and for many small pods the error of either would be large.
func likelyShares(weight uint64) float64 {
	most := mostShares(weight)
	if weight <= 1 {
		return float64(most)
	}
	return math.Sqrt(float64(mostShares(weight-1)+1) * float64(most))
}

// SumWeights sets the CPU weight of the cgroup at path to what its direct children whose names begin
// with prefix have together, plus the lowest weight. It does nothing if the cgroup does not exist.
func (t *Tree) SumWeights(path, prefix string) error {
	t.weighing.Lock()
	defer t.weighing.Unlock()
	mount, name := t.mounts["cpu"], "cpu.shares"
	if t.unified != "" {
		mount, name = t.unified, "cpu.weight"
	}
	if mount == "" {
		return nil
	}
	dir := filepath.Join(mount, path)
	below, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("weighing cgroup %s: %w", path, err)
	}
	sum := float64(lowestShares)
	for _, e := range below {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), name))
		if err != nil {
			continue // it is being removed
		}
		weight, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return fmt.Errorf("weighing cgroup %s: %w", path, err)
		}
		if t.unified != "" {
			sum += likelyShares(weight)
		} else {
			sum += float64(weight)
		}
	}
	weight := min(uint64(math.Round(sum)), highestShares)
	if t.unified != "" {
		weight = weightOf(weight)
	}
	if err := t.weighSlice(path, name, weight); err != nil {
		return err
	}
	value := strconv.FormatUint(weight, 10)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("weighing cgroup %s: %w", path, err)
	}
	return nil
}
