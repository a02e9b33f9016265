package sys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBlockDevice(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"0:0", "", "4095:1", "../.."} {
		if got := BlockDevice(bad); got != "" {
			t.Errorf("%q is %q", bad, got)
		}
	}
	all, err := os.ReadDir("/sys/dev/block")
	if err != nil || len(all) == 0 {
		t.Skip("this machine shows no block devices")
	}
	number := all[0].Name()
	name := BlockDevice(number)
	text, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(name), "dev"))
	if err != nil || strings.TrimSpace(string(text)) != number {
		t.Skipf("%s is %s, a part of another device: %v", number, name, err)
	}
	if got := DeviceOf("/proc"); got != "" {
		t.Errorf("/proc is on %q", got)
	}
}
