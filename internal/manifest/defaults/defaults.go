// Package defaults sets the fields that the manifest of a pod omits to the values that the API server
// would set. It is pure, and does not know which fields podrun supports.
//
// Begin reading at Set.
package defaults

import (
	"maps"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Set sets the fields that a manifest omits to the values that the API server would set.
func Set(p *v1.Pod) {
	p.TypeMeta.Kind, p.TypeMeta.APIVersion = "Pod", "v1"
	orElse(&p.Namespace, v1.NamespaceDefault)
	s := &p.Spec
	orElse(&s.RestartPolicy, v1.RestartPolicyAlways)
	orElse(&s.DNSPolicy, v1.DNSClusterFirst)
	orElse(&s.SchedulerName, v1.DefaultSchedulerName)
	orElse(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	orElseNew(&s.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	orElseNew(&s.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	orElseNew(&s.SecurityContext, v1.PodSecurityContext{})
	if *s.TerminationGracePeriodSeconds < 0 {
		*s.TerminationGracePeriodSeconds = 1 // as Kubernetes, which accepts a negative value and uses 1
	}
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i].VolumeSource)
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i], s.HostNetwork)
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i], s.HostNetwork)
	}
	defaultPodResources(p)
}

// defaultPodResources sets missing pod-level requests of a pod with pod-level limits: to the sum of
// its containers' requests, else to the limit.
func defaultPodResources(p *v1.Pod) {
	own := p.Spec.Resources
	if own == nil {
		return
	}
	roundUp(own.Limits)
	roundUp(own.Requests)
	if len(own.Limits) == 0 {
		return
	}
	requests := v1.ResourceList{}
	maps.Copy(requests, own.Requests)
	of := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	for _, list := range []v1.ResourceList{of, own.Limits} {
		for name, quantity := range list {
			if _, given := requests[name]; !given && resourcehelper.IsSupportedPodLevelResource(name) {
				requests[name] = quantity.DeepCopy()
			}
		}
	}
	if len(requests) > 0 {
		own.Requests = requests
	}
}

func defaultVolume(v *v1.VolumeSource) {
	if *v == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		orElseNew(&v.HostPath.Type, v1.HostPathUnset)
	}
	if v.Image != nil {
		orElse(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.Secret != nil {
		orElseNew(&v.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		orElseNew(&v.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.Projected != nil {
		orElseNew(&v.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				defaultItems(s.DownwardAPI.Items)
			}
		}
	}
	if v.DownwardAPI != nil {
		orElseNew(&v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultItems(v.DownwardAPI.Items)
	}
}

func defaultItems(items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

func defaultContainer(c *v1.Container, hostNetwork bool) {
	orElse(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	orElse(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	orElse(&c.ImagePullPolicy, pullPolicy(c.Image))
	for i := range c.Ports {
		orElse(&c.Ports[i].Protocol, v1.ProtocolTCP)
		if hostNetwork {
			orElse(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				orElseNew(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for name, limit := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; ok {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = v1.ResourceList{}
		}
		c.Resources.Requests[name] = limit.DeepCopy()
	}
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			defaultProbe(probe)
		}
	}
	if c.Lifecycle != nil {
		for _, hook := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				defaultHTTP(hook.HTTPGet)
			}
		}
	}
}

// roundUp rounds quantities up to the next thousandth.
func roundUp(list v1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

func defaultProbe(p *v1.Probe) {
	orElse(&p.TimeoutSeconds, 1)
	orElse(&p.PeriodSeconds, 10)
	orElse(&p.SuccessThreshold, 1)
	orElse(&p.FailureThreshold, 3)
	defaultHTTP(p.HTTPGet)
	if p.GRPC != nil {
		orElseNew(&p.GRPC.Service, "")
	}
}

func defaultHTTP(h *v1.HTTPGetAction) {
	if h == nil {
		return
	}
	orElse(&h.Path, "/")
	orElse(&h.Scheme, v1.URISchemeHTTP)
	if h.Port == (intstr.IntOrString{Type: intstr.String}) {
		h.Port = intstr.FromInt32(0)
	}
}

func defaultFieldRef(f *v1.ObjectFieldSelector) {
	if f != nil {
		orElse(&f.APIVersion, "v1")
	}
}

// pullPolicy returns the default pull policy: Always for the tag latest, explicit or implied, else
// IfNotPresent, also for an invalid reference, as in Kubernetes.
func pullPolicy(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// Secret sets the fields that a Secret omits, and moves stringData into data, as the API server does.
func Secret(s *v1.Secret) {
	orElse(&s.Namespace, v1.NamespaceDefault)
	orElse(&s.Type, v1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// orElse sets *to to value if it is the zero value.
func orElse[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

func orElseNew[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}
