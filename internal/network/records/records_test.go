package records

import (
	"log/slog"
	"testing"

	"podrun.io/podrun/internal/test"
)

// TestRecordDoesNotWait: no pod waits for a disk because the network was changed.
func TestRecordDoesNotWait(t *testing.T) {
	t.Parallel()
	d := &Dir{Path: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	if err := test.WithoutSync(t, func() error { return d.Save(Record{Bridge: "br0"}) }); err != nil {
		t.Error(err)
	}
	if rec, err := d.Load(); err != nil || rec.Bridge != "br0" {
		t.Errorf("the record is %v, %v", rec, err)
	}
}
