package sys

import (
	"errors"
	"io/fs"
	"testing"
	"time"
)

func TestReadUsage(t *testing.T) {
	u, err := ReadUsage()
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU <= 0 || u.WorkingSet <= 0 || u.WorkingSet > u.Memory || u.Memory > u.Total || !u.Since.Before(time.Now()) || u.Since.Year() < 2020 {
		t.Errorf("%+v", u)
	}
	if u.Threads <= 0 || u.Threads > u.MostThreads || u.Swap < 0 || u.Swap > u.SwapTotal {
		t.Errorf("%+v", u)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	own, err := Links("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range own {
		if l.Name == "lo" {
			t.Errorf("%+v", l)
		}
	}
	if _, err := Links(""); err != nil {
		t.Error(err)
	}
	if _, err := Links("/proc/nobody"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no pod: %v", err)
	}
	for name, want := range map[string]bool{"pr0123456789": true, "prabcdefabcd": true, "pr0123": false, "private": false, "prxyz6789012": false, "eth0": false} {
		if isPodEnd(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

func TestReadFS(t *testing.T) {
	t.Parallel()
	f, err := ReadFS(t.TempDir())
	if err != nil || f.Capacity == 0 || f.Available > f.Free || f.Free > f.Capacity || f.FilesFree > f.Files {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := ReadFS("/nowhere"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nowhere: %v", err)
	}
}
