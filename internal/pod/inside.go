package pod

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod/storageclass"
)

// Objects are the objects that pods can refer to. They are shared and must not be modified.
type Objects struct {
	ConfigMaps map[Key]*v1.ConfigMap
	Secrets    map[Key]*v1.Secret
	CSIDrivers map[string]*CSIDriver // by name
	Volumes    map[string]*v1.PersistentVolume
	Classes    map[string]*storageclass.Class
	Claims     map[Key]*v1.PersistentVolumeClaim // those that name a volume or class, or are block devices
	// Partial reports that a source that may contain more objects has not been read yet, so that a
	// missing object does not count as removed.
	Partial bool
}

// Logins returns the contents of the imagePullSecrets of a pod, and the names of those that there are not.
func (o Objects) Logins(p *v1.Pod) (texts [][]byte, missing []string) {
	for _, ref := range p.Spec.ImagePullSecrets {
		secret := o.Secrets[Key{Namespace: p.Namespace, Name: ref.Name}]
		if secret == nil {
			missing = append(missing, ref.Name)
			continue
		}
		for _, key := range []string{v1.DockerConfigJsonKey, v1.DockerConfigKey} {
			if text, found := secret.Data[key]; found {
				texts = append(texts, text)
			}
		}
	}
	return texts, missing
}

// Variable is an environment variable of a container, ready for its process.
type Variable struct {
	Name, Value string
	// Secret reports that the value comes from a Secret or contains a value of one.
	Secret bool
}

// Inside is everything beside the image that decides what a container sees: its environment, mounts
// and addresses.
type Inside struct {
	Pod       *v1.Pod
	Container *v1.Container
	Sandbox   Sandbox
	Objects   Objects
	// HostIPs are the machine's addresses, the primary one first.
	HostIPs []string
	// Node is what the machine offers to pods. A container without a limit of its own has it as
	// limit.
	Node v1.ResourceList
	// Files are the files that fileKeyRef reads.
	Files map[FileKey]string
	// Shown has, by volume name, the paths at which images are mounted as volumes (Images.Show).
	Shown map[string]string
	// Env are the container's resolved variables; each name occurs once.
	Env []Variable
}

// FileKey identifies a file in one of a pod's volumes.
type FileKey struct{ Volume, Path string }

// IPs returns the pod's addresses: the machine's if the pod uses the host network.
func (in Inside) IPs() []string {
	if in.Pod.Spec.HostNetwork {
		return in.HostIPs
	}
	return in.Sandbox.IPs
}

// Mount is a bind mount of a host path into a container. If Block, HostPath is a block device, which gets a node there.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly, Block         bool
	RecursiveReadOnly       bool // also of mounts below HostPath
	OfHost                  bool // the machine's own files, whatever path they are mounted from
	// NoSUID and NoDev say that set-user-ID bits and devices have no effect below HostPath: podrun has mounted it so.
	// A runtime that makes a mount read-only forgets that.
	NoSUID, NoDev bool
	// Propagation says whether mounts that are made on one side appear on the other; "" means None.
	Propagation v1.MountPropagationMode
	// Managed marks a file that podrun provides itself, such as /etc/hosts. A mount of the user's
	// own at the same path replaces it.
	Managed bool
}
