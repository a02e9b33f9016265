package manifest

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"podrun.io/podrun/internal/manifest/support"
)

const compatDoc = "../../docs/compat.md"

var update = flag.Bool("update", false, "write docs/compat.md")

// docs/compat.md must be generated from the current table.
func TestCompatDocument(t *testing.T) {
	t.Parallel()
	want := support.Document()
	if *update {
		if err := os.WriteFile(compatDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(compatDoc)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the table says; run go test ./internal/manifest -update", compatDoc)
	}
}
