package runcshim

import (
	"slices"
	"strings"
	"testing"
)

func TestServing(t *testing.T) {
	const shim = "-namespace podrun -id a1 -address /run/podrun/containerd.sock"
	for _, c := range []struct {
		name, args, namespace string
	}{
		{"what containerd starts", shim, "podrun"},
		{"start", shim + " start", ""},
		{"delete", shim + " -bundle /run/b delete", ""},
		{"debug, which only containerd's program has", shim + " -debug", ""},
		{"version", "-v", ""},
		{"info", "-info", ""},
		{"no namespace", "-id a1", ""},
		{"no ID", "-namespace podrun", ""},
		{"nothing", "", ""},
	} {
		args := strings.Fields(c.args)
		before := slices.Clone(args)
		namespace, serves := serving(args)
		if serves != (c.namespace != "") || serves && namespace != c.namespace || !slices.Equal(args, before) {
			t.Errorf("%s: %q, %v", c.name, namespace, serves)
		}
	}
}
