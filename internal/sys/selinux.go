package sys

import (
	"os"
	"path/filepath"
	"strings"
)

// EnforcesSELinux reports whether SELinux is in enforcing mode on the machine with that root
// directory.
func EnforcesSELinux(root string) bool {
	b, err := os.ReadFile(filepath.Join(root, "sys/fs/selinux/enforce"))
	return err == nil && strings.TrimSpace(string(b)) == "1"
}
