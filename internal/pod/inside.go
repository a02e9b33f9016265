package pod

import v1 "k8s.io/api/core/v1"

// Objects are the ConfigMaps and Secrets that pods may refer to. Nobody changes what is in them.
type Objects struct {
	ConfigMaps map[Key]*v1.ConfigMap
	Secrets    map[Key]*v1.Secret
	// Partial: a place that may have more was not read yet, so that what is not here is not known to be gone.
	Partial bool
}

// Variable is one of a container's environment variables, ready for its process.
type Variable struct {
	Name, Value string
	// Secret: the value is a Secret's, or has one in it.
	Secret bool
}

// Inside is all that decides what a container finds inside, beside its image.
type Inside struct {
	Pod       *v1.Pod
	Container *v1.Container
	Sandbox   Sandbox
	Objects   Objects
	// HostIPs are the machine's addresses, the first one its main one.
	HostIPs []string
	// Node is what the machine has for pods: a container's limit where it has none.
	Node v1.ResourceList
	// Files has what fileKeyRef reads.
	Files map[FileKey]string
	// Shown has where the files of image volumes are, by the volume's name.
	Shown map[string]string
	// Env are the container's variables, resolved, each name once.
	Env []Variable
}

// FileKey is a file in one of a pod's volumes.
type FileKey struct{ Volume, Path string }

// IPs are the pod's addresses: the machine's where it uses the machine's network.
func (in Inside) IPs() []string {
	if in.Pod.Spec.HostNetwork {
		return in.HostIPs
	}
	return in.Sandbox.IPs
}

// Mount is a bind of a host path into a container.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
	// RecursiveReadOnly makes what is mounted below HostPath read-only too.
	RecursiveReadOnly bool
	// Propagation says whether mounts on either side come to be on the other; "" is None.
	Propagation v1.MountPropagationMode
	// Managed marks a file that podrun provides itself, such as /etc/hosts. A mount of the user's own
	// at the same place replaces it.
	Managed bool
}
