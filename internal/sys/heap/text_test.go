package heap

import (
	"testing"

	"github.com/prometheus/procfs"
)

// textRSS is how much of the own program is mapped, in kB.
func textRSS(t *testing.T) uint64 {
	t.Helper()
	p, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return s.RssFile
}

// TestLetTextGo: pages of the program are released, and the program continues to run.
func TestLetTextGo(t *testing.T) {
	fixed, err := isFixed()
	if err != nil {
		t.Fatal(err)
	}
	before := textRSS(t)
	if err := letTextGo(); err != nil {
		t.Fatal(err)
	}
	after := textRSS(t)
	if fixed && after >= before || before == 0 {
		t.Errorf("%d before, %d after", before, after)
	}
	if err := letTextGo(); err != nil { // from pages that were let go
		t.Fatal(err)
	}
}
