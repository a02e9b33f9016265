package sys

import (
	"os"
	"path/filepath"
	"strings"
)

// EnforcesSELinux reports that the machine whose root directory it is refuses what SELinux' policy does not
// allow.
func EnforcesSELinux(root string) bool {
	b, err := os.ReadFile(filepath.Join(root, "sys/fs/selinux/enforce"))
	return err == nil && strings.TrimSpace(string(b)) == "1"
}
