package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CPUs returns the CPUs that containers may run on, in the kernel's format, such as "0-3,8".
func (t *Tree) CPUs() (string, error) {
	path := filepath.Join(t.unified, "cpuset.cpus.effective")
	if t.unified == "" {
		mounted, is := t.mounts["cpuset"]
		if !is {
			return "", fmt.Errorf("the controller cpuset is not mounted")
		}
		path = filepath.Join(mounted, "cpuset.effective_cpus")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the controller cpuset is missing: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
