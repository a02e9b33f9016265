package cni_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/network/nettest"
)

func TestPluginsBandwidth(t *testing.T) {
	without := newPlugged(t)
	if _, err := without.setup("a", nettest.NewNS(t), nettest.Limited("80M", "")); err == nil || !strings.Contains(err.Error(), "capability bandwidth") {
		t.Errorf("error %v", err)
	}
	without.release(t, "a")
	without.empty(t)
	if _, err := os.Stat(filepath.Join(pluginDir, "bandwidth")); err != nil {
		t.Skipf("needs the plugin bandwidth: %v", err)
	}
	p := newPlugged(t, `{"type":"bandwidth","capabilities":{"bandwidth":true}}`)
	a := nettest.NewNS(t)
	if _, err := p.setup("a", a, nettest.Limited("80M", "1k")); err != nil {
		t.Fatal(err)
	}
	if got := nettest.Rates(t, p.host); len(got) != 2 || min(got[0], got[1]) != 125 || max(got[0], got[1]) != 10_000_000 {
		t.Errorf("rates %v", got)
	}
	p.release(t, "a")
	p.empty(t)
	if got := nettest.Rates(t, p.host); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}
