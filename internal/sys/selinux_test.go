package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestEnforcesSELinux(t *testing.T) {
	for text, want := range map[string]bool{"1": true, "1\n": true, "0": false, "": false} {
		root := t.TempDir()
		dir := filepath.Join(root, "sys/fs/selinux")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "enforce"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		if got := EnforcesSELinux(root); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if EnforcesSELinux(t.TempDir()) {
		t.Error("enforced where there is no SELinux")
	}
}
