package documents

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The volume that the API server's ServiceAccount admission adds to a pod: the prefix of its name, and
// where containers have it.
const (
	injectedPrefix = "kube-api-access-"
	injectedPath   = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// IsInjectedToken reports whether an API server has added a volume to p, rather than its author, who
// may need the token: it has the name that an API server gives, and is mounted only where clients of
// the API server look for it.
func IsInjectedToken(p *v1.Pod, v *v1.Volume) bool {
	onlyProjected := v.VolumeSource == v1.VolumeSource{Projected: v.Projected} // else validation refuses the others
	if !strings.HasPrefix(v.Name, injectedPrefix) || v.Projected == nil || !onlyProjected {
		return false
	}
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for _, m := range containers[i].VolumeMounts {
				if m.Name == v.Name && m.MountPath != injectedPath {
					return false
				}
			}
		}
	}
	return slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool {
		// Its token is for the API server, for which no audience is named.
		return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == ""
	})
}
