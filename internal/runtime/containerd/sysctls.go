package containerd

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// allowSysctls returns an error for a pod that sets a kernel parameter that is neither safe nor
// allowed on this node.
func (r *Runtime) allowSysctls(p *v1.Pod) error {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		if !pod.SafeSysctl(s.Name, r.AllowedSysctls) {
			return &runtime.ReasonError{Reason: "SysctlForbidden",
				Err: fmt.Errorf("sysctl %s is not safe, and not among this node's --allowed-unsafe-sysctls", s.Name)}
		}
	}
	return nil
}
