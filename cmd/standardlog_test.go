package cmd

import (
	"log"
	"strings"
	"testing"
)

// TestStandardLogIsPodruns: a library's line is in podrun's log and its format, at the level debug.
func TestStandardLogIsPodruns(t *testing.T) {
	flags, before := log.Flags(), log.Writer()
	defer func() {
		log.SetFlags(flags)
		log.SetOutput(before)
	}()
	a, _, errOut := newApp(t, nil)
	c := a.root()
	c.SetArgs([]string{"validate", "../examples/web.yaml", "--log-level", "debug", "--log-format", "json"})
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	log.Print("from a library\nlevel=ERROR")
	if got := errOut.String(); !strings.Contains(got, `"text":"from a library\nlevel=ERROR"`) {
		t.Errorf("got %s", got)
	}
}
