package convert

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys/excerpt"
)

// templates are the workloads that podrun does not have, each with the path of its pod template.
var templates = map[string][]string{
	"ReplicationController": {"spec", "template"}, "PodTemplate": {"template"},
}

// instead says what takes the place of an object that only a cluster has.
var instead = map[string]string{
	"Service":               "pods find each other by their names, and hostPort publishes a port",
	"Ingress":               "run a proxy in a pod with a hostPort",
	"Namespace":             "a namespace needs no object",
	"ServiceAccount":        "there is no API server to whom a pod could identify itself",
	"PersistentVolumeClaim": "podrun makes a directory for each claim that a pod uses",
	"PersistentVolume":      "a claim is a directory here; copy the document if the claim must have this volume, and name the claim in it",
	"NetworkPolicy":         "podrun has no network policies",
	"PodDisruptionBudget":   "there is one machine",
}

// kubernetes converts an object of Kubernetes, or a list of them.
func (c *converter) kubernetes(object map[string]any) {
	kind := text(object, "kind")
	shown := excerpt.Of(kind, maxName) // in the messages for many objects
	if items, is := object["items"].([]any); is && strings.HasSuffix(kind, "List") {
		for i, one := range items {
			item, is := one.(map[string]any)
			if !is {
				c.fail(fmt.Sprintf("%s: items[%d]", shown, i), fmt.Errorf("is not an object"))
				continue
			}
			if item["kind"] == nil { // as the API's typed lists have them
				item["kind"] = strings.TrimSuffix(kind, "List")
			}
			c.kubernetes(item)
		}
		return
	}
	metadata := at(object, "metadata")
	name := excerpt.Of(
		fmt.Sprintf("%s %s/%s", shown, cmp.Or(text(metadata, "namespace"), "default"), text(metadata, "name")), maxName)
	switch path := templates[kind]; {
	case kind == "Pod":
		c.pod(name, object)
	case workloads[kind] != nil:
		c.keep(name, kind, object)
	case path != nil:
		c.workload(name, kind, object, at(object, path...))
	case kind == "ConfigMap" || kind == "Secret" || kind == "StorageClass" || kind == "CSIDriver":
		c.dropMetadata(name, metadata)
		c.addTree(name, object)
	default:
		c.drop(name, "the object", cmp.Or(instead[kind], "podrun has no "+shown))
	}
}

// pod converts a pod, whoever wrote it.
func (c *converter) pod(name string, object map[string]any) {
	c.dropSuffix(name, at(object, "metadata"), text(at(object, "spec"), "nodeName"))
	if p := c.podOf(name, "", object); p != nil {
		c.add(name, p)
	}
}

// podOf returns a pod without what is of a cluster; nil if it cannot be read. prefix precedes its fields in messages.
func (c *converter) podOf(name, prefix string, object map[string]any) *v1.Pod {
	c.dropMetadata(name, at(object, "metadata"))
	delete(object, "status") // is not part of what was wanted
	check(c, name, prefix, object, reflect.TypeFor[v1.Pod]())
	p := &v1.Pod{}
	if err := into(object, p); err != nil {
		c.fail(name, err)
		return nil
	}
	c.dropCluster(name, prefix, p)
	return p
}

// configPrefix begins the annotations of who reads manifests: a kubelet or podrun.
const configPrefix = "kubernetes.io/config."

// dropSuffix removes the node's name from the name of a static pod: whoever reads its manifest adds it again.
func (c *converter) dropSuffix(name string, metadata map[string]any, node string) {
	source := text(at(metadata, "annotations"), configPrefix+"source")
	bare, suffixed := strings.CutSuffix(text(metadata, "name"), "-"+node)
	if source != "" && source != "api" && node != "" && suffixed && bare != "" {
		c.drop(name, "metadata.name", "without the node's name it is "+bare+": podrun adds the name of its own node")
		metadata["name"] = bare
	}
}

// dropMetadata removes what an API server adds. Only what an author may have meant is named.
func (c *converter) dropMetadata(name string, metadata map[string]any) {
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
	} {
		delete(metadata, field)
	}
	annotations := at(metadata, "annotations")
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	for key := range annotations {
		if strings.HasPrefix(key, configPrefix) || strings.HasPrefix(key, "cni.projectcalico.org/") {
			delete(annotations, key)
		}
	}
	for _, field := range []string{"ownerReferences", "finalizers", "deletionGracePeriodSeconds", "deletionTimestamp"} {
		if _, is := metadata[field]; is {
			c.drop(name, "metadata."+field, "is of use to an API server only")
			delete(metadata, field)
		}
	}
	if _, is := metadata["generateName"]; is && text(metadata, "name") != "" {
		delete(metadata, "generateName")
	}
}

// dropCluster removes what a scheduler, an API server and its admission have added or act on.
func (c *converter) dropCluster(name, prefix string, p *v1.Pod) {
	s := &p.Spec
	drop := func(is bool, field, why string, remove func()) {
		if is {
			c.drop(name, prefix+"spec."+field, why)
			remove()
		}
	}
	s.NodeName = "" // was the scheduler's decision
	if s.SchedulerName == v1.DefaultSchedulerName {
		s.SchedulerName = ""
	}
	drop(s.SchedulerName != "", "schedulerName", "there is no scheduler", func() { s.SchedulerName = "" })
	account := s.ServiceAccountName != "" && s.ServiceAccountName != "default"
	drop(account, "serviceAccountName", "there is no API server", func() {})
	s.ServiceAccountName, s.DeprecatedServiceAccount, s.AutomountServiceAccountToken = "", "", nil
	c.dropToken(name, prefix, p)
	if !strings.HasPrefix(s.PriorityClassName, "system-") {
		drop(s.PriorityClassName != "", "priorityClassName", "is not known here", func() { s.PriorityClassName = "" })
		s.Priority = nil
	}
	s.PreemptionPolicy = nil
	drop(s.Affinity != nil, "affinity", "there is one machine", func() { s.Affinity = nil })
	drop(len(s.NodeSelector) > 0, "nodeSelector", "there is one machine", func() { s.NodeSelector = nil })
	drop(len(s.TopologySpreadConstraints) > 0, "topologySpreadConstraints", "there is one machine",
		func() { s.TopologySpreadConstraints = nil })
	s.Tolerations = slices.DeleteFunc(s.Tolerations, func(t v1.Toleration) bool {
		return t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable
	})
	drop(len(s.Tolerations) > 0, "tolerations", "there are no taints", func() { s.Tolerations = nil })
	drop(len(s.ReadinessGates) > 0, "readinessGates", "nobody sets their conditions", func() { s.ReadinessGates = nil })
	drop(len(s.SchedulingGates) > 0, "schedulingGates", "there is no scheduler", func() { s.SchedulingGates = nil })
	drop(len(s.Overhead) > 0, "overhead", "is the API server's addition", func() { s.Overhead = nil })
}

// dropToken removes the volume with the token of the service account, which every pod of a cluster has.
func (c *converter) dropToken(name, prefix string, p *v1.Pod) {
	injected := func(volume string) bool { return strings.HasPrefix(volume, "kube-api-access-") }
	mounts := func(m v1.VolumeMount) bool { return injected(m.Name) }
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v v1.Volume) bool { return injected(v.Name) })
	for _, all := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			all[i].VolumeMounts = slices.DeleteFunc(all[i].VolumeMounts, mounts)
		}
	}
	if len(p.Spec.EphemeralContainers) > 0 {
		c.drop(name, prefix+"spec.ephemeralContainers", "are of one run of a pod")
		p.Spec.EphemeralContainers = nil
	}
}

// silent are the fields of a workload without which its pod is the same.
var silent = []string{"template", "selector", "revisionHistoryLimit", "serviceName"}

// workload makes the pod of a workload.
func (c *converter) workload(name, kind string, object, template map[string]any) {
	if template == nil {
		c.fail(name, fmt.Errorf("has no pod template"))
		return
	}
	spec, metadata := at(object, "spec"), at(object, "metadata")
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
	own := map[string]any{"name": text(metadata, "name")}
	for _, field := range []string{"labels", "annotations"} {
		if v := at(template, "metadata")[field]; v != nil {
			own[field] = v
		}
	}
	if namespace := text(metadata, "namespace"); namespace != "" {
		own["namespace"] = namespace
	}
	pod["metadata"] = own
	for _, field := range sorted(spec) {
		if !slices.Contains(silent, field) {
			c.dropSpec(name, "spec."+field, spec[field])
		}
	}
	c.pod(name, pod)
}

// dropSpec names a field of a workload that its pod does not have.
func (c *converter) dropSpec(name, field string, value any) {
	why := "a pod has no such field"
	switch field[strings.LastIndexByte(field, '.')+1:] {
	case "replicas":
		if fmt.Sprint(value) == "1" {
			return
		}
		why = fmt.Sprintf("%v: one pod is made; copy it under other names for more", value)
	}
	c.drop(name, field, why)
}
