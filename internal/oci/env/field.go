package env

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

// Field returns the value of a pod field that the downward API supports.
func Field(in pod.Inside, path string) (string, error) {
	p := in.Pod
	if field, key, ok := Subscript(path); ok {
		switch field {
		case "metadata.labels":
			return p.Labels[key], nil
		case "metadata.annotations":
			return p.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.labels":
		return Lines(p.Labels), nil
	case "metadata.annotations":
		return Lines(p.Annotations), nil
	case "spec.nodeName":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(in.HostIPs, path)
	case "status.hostIPs":
		return strings.Join(in.HostIPs, ","), nil
	case "status.podIP":
		return first(in.IPs(), path)
	case "status.podIPs":
		return strings.Join(in.IPs(), ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

// ErrNoAddress means that the machine or the pod has no address yet.
var ErrNoAddress = errors.New("there is no address yet")

func first(ips []string, path string) (string, error) {
	if len(ips) == 0 {
		return "", fmt.Errorf("%s: %w", path, ErrNoAddress)
	}
	return ips[0], nil
}

// Subscript splits a path such as metadata.labels['a'] into field and key; ok is false for any
// other path.
func Subscript(path string) (field, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	field, key, ok = strings.Cut(rest, "['")
	return field, key, ok && field != ""
}

// Lines formats a map as the downward API does: one line key="value" for each entry, ordered by
// key.
func Lines(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// Resource returns a limit or request of the container, or of another container of its pod, in
// units of the divisor, rounded up. A limit that is not set is that of the pod or, if that is not
// set either, the machine's capacity.
func Resource(in pod.Inside, ref *v1.ResourceFieldSelector) (string, error) {
	c := in.Container
	if ref.ContainerName != "" && (c == nil || ref.ContainerName != c.Name) {
		if c = containerOf(in.Pod, ref.ContainerName); c == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	resource := v1.ResourceName(name)
	if c == nil || !isResource(resource) {
		return "", fmt.Errorf("unsupported container resource: %s", ref.Resource)
	}
	switch kind {
	case "limits":
		return divide(resource, limitOf(in, c, resource), ref.Divisor), nil
	case "requests":
		return divide(resource, c.Resources.Requests[resource], ref.Divisor), nil
	}
	return "", fmt.Errorf("unsupported container resource: %s", ref.Resource)
}

// limitOf returns the limit that applies to c, as the kubelet's downward API has it. Huge pages have
// no limit but c's own, because they are never overcommitted.
func limitOf(in pod.Inside, c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if !limit.IsZero() || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
		return limit
	}
	if pods := in.Pod.Spec.Resources; pods != nil {
		if limit = pods.Limits[name]; !limit.IsZero() {
			return limit
		}
	}
	return in.Node[name]
}

func isResource(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

func containerOf(p *v1.Pod, name string) *v1.Container {
	for _, all := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
	}
	return nil
}

// divide computes in thousandths for CPU and in whole units for everything else, as Kubernetes
// does.
func divide(name v1.ResourceName, value, divisor resource.Quantity) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == v1.ResourceCPU {
		return strconv.FormatInt(int64(math.Ceil(float64(value.MilliValue())/float64(divisor.MilliValue()))), 10)
	}
	return strconv.FormatInt(int64(math.Ceil(float64(value.Value())/float64(divisor.Value()))), 10)
}
