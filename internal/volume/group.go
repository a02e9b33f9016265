package volume

import (
	v1 "k8s.io/api/core/v1"
)

// fsGroup is the group that the pod's volumes belong to; nil: none.
func fsGroup(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}
