package oci

import (
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Users is the size of the user ID range of a pod with hostUsers: false, as in Kubernetes. The IDs
// in the pod start at 0.
const Users = 65536

// setUsers puts the container into its pod's user namespace, if the pod has one.
func setUsers(spec *specs.Spec, in Input) error {
	if own := in.Pod.Spec.HostUsers; own == nil || *own {
		return nil
	}
	if in.Namespaces.User == "" || in.Namespaces.FirstUser == 0 {
		return errors.New("the pod's user namespace is missing")
	}
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{
		Type: specs.UserNamespace, Path: in.Namespaces.User,
	})
	mapping := []specs.LinuxIDMapping{{ContainerID: 0, HostID: in.Namespaces.FirstUser, Size: Users}}
	spec.Linux.UIDMappings, spec.Linux.GIDMappings = mapping, mapping
	who := user(in)
	for _, id := range append([]uint32{who.UID, who.GID}, who.AdditionalGids...) {
		if id >= Users {
			return fmt.Errorf("hostUsers is false, and user or group %d is not among the pod's own, which are 0 to %d",
				id, Users-1)
		}
	}
	return nil
}
