package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return nil
}

// settle waits for the effects of earlier work to end, so that they are not measured with what
// follows.
func settle(ctx context.Context) error { return sleep(ctx, 500*time.Millisecond) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pss returns a process's proportional set size in MB (10^6 bytes).
func pss(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); fields[0] == "Pss:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("process %d has no Pss", pid)
}

// cpu returns the CPU time of a process's current threads, with nanosecond resolution.
func cpu(pid int) (time.Duration, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, thread := range threads {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		if err != nil {
			continue // the thread has ended
		}
		onCPU, _, _ := strings.Cut(string(data), " ")
		ns, err := strconv.ParseInt(onCPU, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}
