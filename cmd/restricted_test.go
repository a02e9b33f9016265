package cmd

import (
	"testing"
)

// TestRestrictedExample: podrun validate accepts an example with the level that docs/security.md recommends.
func TestRestrictedExample(t *testing.T) {
	t.Parallel()
	a, out, _ := newApp(t, nil)
	c := validateCommand(a)
	c.SetArgs([]string{"--pod-security", "restricted", "../examples/web.yaml"})
	if err := c.Execute(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
