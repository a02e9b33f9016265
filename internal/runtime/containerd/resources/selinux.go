package resources

import (
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// superPrivileged is the type of containers that the policy does not confine.
const superPrivileged = "spc_t"

// seLinux returns the SELinux labels of a container's process and of its files; "" if the container
// does not request any.
func seLinux(uid pod.UID, o *v1.SELinuxOptions) (process, files string, err error) {
	if o == nil || *o == (v1.SELinuxOptions{}) {
		return "", "", nil
	}
	if !selinux.GetEnabled() {
		if o.Type == superPrivileged {
			return "", "", nil // it has what it asks for
		}
		return "", "", errors.New("seLinuxOptions: SELinux is not in use on this machine")
	}
	process, files, err = label.InitLabels(labelOptions(uid, o))
	if err == nil && process == "" {
		err = errors.New("the machine's policy has no label for containers (lxc_contexts)")
	}
	if err != nil {
		return "", "", fmt.Errorf("seLinuxOptions: %w", err)
	}
	return process, files, nil
}

// labelOptions returns the options that differ from the policy's label for containers. If no level
// is requested, all containers of a pod get the same level, derived from the pod's UID, which
// hardly any other pod has.
func labelOptions(uid pod.UID, o *v1.SELinuxOptions) []string {
	level := o.Level
	if level == "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(uid)) // never fails
		const categories = 1024
		a, b := h.Sum32()%categories, h.Sum32()/categories%(categories-1)
		if b >= a {
			b++
		}
		level = fmt.Sprintf("s0:c%d,c%d", min(a, b), max(a, b))
	}
	out := []string{"level:" + level}
	for _, part := range []struct{ name, value string }{{"user", o.User}, {"role", o.Role}, {"type", o.Type}} {
		if part.value != "" {
			out = append(out, part.name+":"+part.value)
		}
	}
	return out
}
