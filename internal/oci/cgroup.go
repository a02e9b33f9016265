package oci

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Driver is who makes the cgroups of pods; "" is Cgroupfs.
type Driver string

const (
	// Cgroupfs is podrun itself and, for containers, the low-level runtime.
	Cgroupfs Driver = "cgroupfs"
	// Systemd is systemd: each pod has a slice, and each container a scope in it.
	Systemd Driver = "systemd"
)

// drivers are all, the one first that most machines have.
var drivers = [...]Driver{Cgroupfs, Systemd}

// The unit that all of podrun's pods are under with Systemd, and what its containers' units begin with.
const (
	sliceRoot   = "podrun"
	sliceSuffix = ".slice"
	scopeSuffix = ".scope"
)

// Root is the cgroup that all of podrun's pods are under, as a path from the cgroup root.
func (d Driver) Root() string {
	if d == Systemd {
		return "/" + sliceRoot + sliceSuffix
	}
	return "/podrun"
}

// Class is the cgroup of the pods of a class; guaranteed ones are in Root itself.
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

// OfPod is the cgroup of the pod, the parent of its containers'.
func (d Driver) OfPod(p *v1.Pod) string { return d.ofUID(pod.QOS(p), string(p.UID)) }

// PodPrefix begins the names of pods' cgroups in that of their class.
func (d Driver) PodPrefix(c v1.PodQOSClass) string {
	if d == Systemd {
		return strings.TrimSuffix(path.Base(d.Class(c)), sliceSuffix) + "-pod"
	}
	return "pod"
}

func (d Driver) ofUID(c v1.PodQOSClass, uid string) string {
	name := d.PodPrefix(c) + uid
	if d == Systemd {
		// In a slice's name - leads downwards. Kubernetes writes _ for it in a UID, which has none there.
		uid = strings.NewReplacer("_", `\x5f`, "-", "_").Replace(uid)
		name = d.PodPrefix(c) + uid + sliceSuffix
	}
	return path.Join(d.Class(c), name)
}

// cgroupsPath is what a spec says of the cgroup of the pod's container id: with Systemd its slice, and what makes
// the name of its scope.
func (d Driver) cgroupsPath(p *v1.Pod, id string) string { return d.inPod(d.OfPod(p), id) }

func (d Driver) inPod(dir, id string) string {
	if d == Systemd {
		return path.Base(dir) + ":" + sliceRoot + ":" + id
	}
	return path.Join(dir, id)
}

// OfContainer is the cgroup of the pod's container id.
func (d Driver) OfContainer(p *v1.Pod, id string) string { return CgroupDir(d.cgroupsPath(p, id)) }

// DriverOf tells by what a spec says of a cgroup who makes it.
func DriverOf(cgroupsPath string) Driver {
	if strings.Contains(cgroupsPath, ":") {
		return Systemd
	}
	return Cgroupfs
}

// CgroupDir is the cgroup that a spec means, as a path from the cgroup root; "" if it says nothing.
func CgroupDir(cgroupsPath string) string {
	parts := strings.SplitN(cgroupsPath, ":", 3)
	if len(parts) != 3 {
		return cgroupsPath
	}
	dir, slice := "/", strings.TrimSuffix(parts[0], sliceSuffix)
	for i, c := range slice + "-" { // each slice is in that whose name is its own up to the last -
		if c == '-' {
			dir = path.Join(dir, slice[:i]+sliceSuffix)
		}
	}
	return path.Join(dir, parts[1]+"-"+parts[2]+scopeSuffix)
}

// CgroupsOf are all the places where the cgroup of a pod with this UID may be.
func CgroupsOf(uid string) []string {
	var out []string
	for _, d := range drivers {
		for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
			out = append(out, d.ofUID(class, uid))
		}
	}
	return out
}

// CgroupsOfInstance are all the places where the cgroup of the instance id, of a pod with this UID, may be.
func CgroupsOfInstance(uid, id string) []string {
	var out []string
	for _, d := range drivers {
		for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
			out = append(out, CgroupDir(d.inPod(d.ofUID(class, uid), id)))
		}
	}
	return out
}

// InstanceOf returns the ID of the instance whose cgroup has that name in its pod's.
func InstanceOf(name string) string {
	if id, isScope := strings.CutSuffix(name, scopeSuffix); isScope {
		return strings.TrimPrefix(id, sliceRoot+"-")
	}
	return name
}

// CgroupsOfContainer are the places where that of the pod's container id may be.
func CgroupsOfContainer(p *v1.Pod, id string) []string {
	return []string{Cgroupfs.OfContainer(p, id), Systemd.OfContainer(p, id)}
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
