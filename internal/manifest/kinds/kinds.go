// Package kinds lists the kinds of Kubernetes' objects that a manifest may have: those that podrun
// acts on, and those that it reads and does not need, each with what that means on one machine.
//
// The package does not decode objects and knows none of their fields.
//
// Begin reading at Of.
package kinds

import (
	"regexp"
	"slices"
	"strings"

	"podrun.io/podrun/internal/manifest/decode"
)

// Role is what podrun does with the objects of a kind.
type Role int

// The roles. The zero value is no kind that podrun knows.
const (
	Unknown Role = iota
	// Pod is the role of pods.
	Pod
	// List is the role of lists, whose items are objects.
	List
	// Object is the role of objects to which pods refer.
	Object
	// Workload is the role of objects from which pods are made.
	Workload
	// Claim is the role of PersistentVolumeClaims.
	Claim
	// Passed is the role of kinds that are read and not needed: nothing on one machine acts on them.
	Passed
)

// Kind is a kind of Kubernetes' objects.
type Kind struct {
	Name string
	Role Role
	// Groups are the API groups that have or had the kind, the current one first; "" is the core group.
	Groups []string
	// Meaning says what it means that podrun passes over the objects.
	Meaning string
}

// acted are the kinds that podrun acts on, in the order in which errors list them.
var acted = []Kind{
	{Name: "Pod", Role: Pod, Groups: core},
	{Name: "PodList", Role: List, Groups: core},
	{Name: "List", Role: List, Groups: core},
	{Name: "ConfigMap", Role: Object, Groups: core},
	{Name: "Secret", Role: Object, Groups: core},
	{Name: "PersistentVolumeClaim", Role: Claim, Groups: core},
	{Name: "PersistentVolume", Role: Object, Groups: core},
	{Name: "CSIDriver", Role: Object, Groups: storage},
	{Name: "StorageClass", Role: Object, Groups: storage},
	{Name: "Deployment", Role: Workload, Groups: apps},
	{Name: "ReplicaSet", Role: Workload, Groups: apps},
	{Name: "StatefulSet", Role: Workload, Groups: apps},
	{Name: "DaemonSet", Role: Workload, Groups: apps},
	{Name: "Job", Role: Workload, Groups: batch},
	{Name: "CronJob", Role: Workload, Groups: batch},
}

// Of returns the kind with a name. Its Role is Unknown if there is none.
func Of(name string) Kind {
	for _, list := range [][]Kind{acted, passed} {
		if i := slices.IndexFunc(list, func(k Kind) bool { return k.Name == name }); i >= 0 {
			return list[i]
		}
	}
	return Kind{}
}

// Acted returns the names of the kinds that podrun acts on.
func Acted() []string {
	var names []string
	for _, k := range acted {
		names = append(names, k.Name)
	}
	return names
}

// PassedOver returns the kinds that are read and not needed, in alphabetical order.
func PassedOver() []Kind {
	return slices.SortedFunc(slices.Values(passed), func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
}

// Near returns the name of a kind that was probably meant by name; "" if there is none.
func Near(name string) string {
	names := Acted()
	for _, k := range passed {
		names = append(names, k.Name)
	}
	near, _ := decode.Nearest(name, names)
	return near
}

// version matches the versions of API groups.
var version = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// Has reports whether objects of the kind have, or had in an earlier Kubernetes, the apiVersion. Of a
// kind that podrun acts on, it is the current one alone.
func (k Kind) Has(apiVersion string) bool {
	if k.Role != Passed {
		return apiVersion == k.APIVersion()
	}
	group, v, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, v = "", apiVersion
	}
	return slices.Contains(k.Groups, group) && version.MatchString(v)
}

// APIVersion returns the current apiVersion of the kind. That of a kind which is passed over may have
// an older one.
func (k Kind) APIVersion() string { return strings.TrimPrefix(k.Groups[0]+"/v1", "/") }
