package oci

import (
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Driver says what creates the cgroups of pods; "" means Cgroupfs.
type Driver string

const (
	// Cgroupfs means that podrun creates pods' cgroups, and the low-level runtime (runc) those of
	// containers.
	Cgroupfs Driver = "cgroupfs"
	// Systemd means that systemd creates them: each pod has a slice, and each container a scope in
	// it.
	Systemd Driver = "systemd"
)

// drivers are all drivers, the most frequent one first.
var drivers = [...]Driver{Cgroupfs, Systemd}

// The slice of all of podrun's pods with Systemd, which is also the prefix of their containers'
// scopes, and the suffixes of units.
const (
	sliceRoot   = "podrun"
	sliceSuffix = ".slice"
	scopeSuffix = ".scope"
)

// Root returns the cgroup of all of podrun's pods, as a path from the cgroup root.
func (d Driver) Root() string {
	if d == Systemd {
		return "/" + sliceRoot + sliceSuffix
	}
	return "/podrun"
}

// Class returns the cgroup of the pods of a QoS class; guaranteed pods are directly in Root.
func (d Driver) Class(c v1.PodQOSClass) string {
	name := className(c)
	switch {
	case name == "":
		return d.Root()
	case d == Systemd:
		return path.Join(d.Root(), sliceRoot+"-"+name+sliceSuffix)
	default:
		return path.Join(d.Root(), name)
	}
}

// OfPod returns the cgroup of the pod, the parent of its containers' cgroups.
func (d Driver) OfPod(p *v1.Pod) string { return d.ofUID(pod.QOS(p), string(p.UID)) }

// PodPrefix returns the prefix of the names of pods' cgroups in the cgroup of their QoS class.
func (d Driver) PodPrefix(c v1.PodQOSClass) string {
	if d == Systemd {
		return strings.TrimSuffix(path.Base(d.Class(c)), sliceSuffix) + "-pod"
	}
	return "pod"
}

func (d Driver) ofUID(c v1.PodQOSClass, uid string) string {
	name := d.PodPrefix(c) + uid
	if d == Systemd {
		// In the name of a slice, - separates levels. As in Kubernetes each - of the UID becomes _;
		// a _ in the UID, which Kubernetes' UIDs do not have, is escaped, and so is a :, which ends a
		// slice's name in cgroupsPath.
		uid = strings.NewReplacer("_", `\x5f`, "-", "_", ":", `\x3a`).Replace(uid)
		name = d.PodPrefix(c) + uid + sliceSuffix
	}
	return path.Join(d.Class(c), name)
}

// cgroupsPath returns the cgroupsPath of the spec of the pod's instance id: a path or, with
// Systemd, SLICE:PREFIX:NAME, from which runc makes the name of the scope.
func (d Driver) cgroupsPath(p *v1.Pod, id string) string { return d.inPod(d.OfPod(p), id) }

func (d Driver) inPod(dir, id string) string {
	if d == Systemd {
		return path.Base(dir) + ":" + sliceRoot + ":" + id
	}
	return path.Join(dir, id)
}

// OfContainer returns the cgroup of the pod's instance id.
func (d Driver) OfContainer(p *v1.Pod, id string) string { return CgroupDir(d.cgroupsPath(p, id)) }

// DriverOf returns the driver that the cgroupsPath of a spec is written for.
func DriverOf(cgroupsPath string) Driver {
	if cgroupsPath == "" || strings.HasPrefix(cgroupsPath, "/") { // a UID may have a :
		return Cgroupfs
	}
	return Systemd
}

// CgroupDir returns the cgroup that the cgroupsPath of a spec refers to, as a path from the cgroup
// root; "" for an empty one.
func CgroupDir(cgroupsPath string) string {
	parts := strings.SplitN(cgroupsPath, ":", 3)
	if DriverOf(cgroupsPath) == Cgroupfs || len(parts) != 3 {
		return cgroupsPath
	}
	dir, slice := "/", strings.TrimSuffix(parts[0], sliceSuffix)
	for i, c := range slice + "-" { // the parent of a slice is named like it without the part after the last -
		if c == '-' {
			dir = path.Join(dir, slice[:i]+sliceSuffix)
		}
	}
	return path.Join(dir, parts[1]+"-"+parts[2]+scopeSuffix)
}

// CgroupsOf returns all paths at which the cgroup of a pod with this UID may be.
func CgroupsOf(uid string) []string {
	var out []string
	for _, d := range drivers {
		for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
			out = append(out, d.ofUID(class, uid))
		}
	}
	return out
}

// CgroupsOfInstance returns all paths at which the cgroup of the instance id, of a pod with this
// UID, may be.
func CgroupsOfInstance(uid, id string) []string {
	var out []string
	for _, d := range drivers {
		for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
			out = append(out, CgroupDir(d.inPod(d.ofUID(class, uid), id)))
		}
	}
	return out
}

// InstanceOf returns the ID of the instance whose cgroup has that name in its pod's cgroup.
func InstanceOf(name string) string {
	if id, isScope := strings.CutSuffix(name, scopeSuffix); isScope {
		return strings.TrimPrefix(id, sliceRoot+"-")
	}
	return name
}

// CgroupsOfContainer returns the paths at which the cgroup of the pod's instance id may be.
func CgroupsOfContainer(p *v1.Pod, id string) []string {
	return []string{Cgroupfs.OfContainer(p, id), Systemd.OfContainer(p, id)}
}

// hierarchy is where cgroups are mounted.
const hierarchy = "/sys/fs/cgroup"

// mayHaveCgroups reports whether the container may make cgroups in its own, as a container engine does, with lower
// limits. systemd ends a scope with a policy for the lack of memory also if only such a cgroup has run out of its own.
func mayHaveCgroups(spec *specs.Spec) bool {
	if slices.Contains(spec.Process.Capabilities.Bounding, "CAP_SYS_ADMIN") {
		return true // it can mount them
	}
	below := func(dir, of string) bool { return strings.HasPrefix(dir+"/", strings.TrimSuffix(of, "/")+"/") }
	return slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool {
		of := path.Clean(m.Source)
		return m.Type == "bind" && (below(of, hierarchy) || below(hierarchy, of)) ||
			m.Type == "cgroup" && !slices.Contains(m.Options, "ro")
	})
}

func className(c v1.PodQOSClass) string {
	switch c {
	case v1.PodQOSBurstable:
		return "burstable"
	case v1.PodQOSBestEffort:
		return "besteffort"
	default:
		return ""
	}
}
