package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestPressure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree := &Tree{unified: dir}
	if got := tree.Pressure("/"); got != (Pressure{}) {
		t.Errorf("without files: %+v", got)
	}
	write("memory.pressure", "some avg10=1.50 avg60=0.25 avg300=0.03 total=5678\nfull avg10=1.00 avg60=0.20 avg300=0.02 total=9007199254740993\nmore x=1\n")
	write("cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n") // as the machine's, in older kernels
	write("io.pressure", "")
	got := tree.Pressure("/")
	if got.Memory == nil || got.CPU == nil || got.IO != nil {
		t.Fatalf("%+v", got)
	}
	want := Stalls{Stall{5678 * time.Microsecond, 1.5, 0.25, 0.03}, Stall{9007199254740993 * time.Microsecond, 1, 0.2, 0.02}}
	if *got.Memory != want {
		t.Errorf("memory: %+v, want %+v", *got.Memory, want)
	}
	if *got.CPU != (Stalls{Some: Stall{Total: 7 * time.Microsecond}}) {
		t.Errorf("CPU: %+v", *got.CPU)
	}
	if got := (&Tree{mounts: map[string]string{"cpu": dir}}).Pressure("/"); got != (Pressure{}) {
		t.Errorf("version 1: %+v", got)
	}
}
