package containerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	contribapparmor "github.com/containerd/containerd/v2/contrib/apparmor"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/apparmor"
	"github.com/containerd/containerd/v2/pkg/cap"
	containerdoci "github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// machineFor returns the features of the machine that the container requests: capabilities,
// devices, labels and profiles. It returns an error if the machine does not have one of them.
func (r *Runtime) machineFor(p *v1.Pod, c *v1.Container) (oci.Machine, error) {
	m := oci.Machine{
		SeccompByDefault: r.SeccompDefault, DefaultSeccomp: seccomp.DefaultProfile,
		Memory: r.limits.memory, LowestOOMScoreAdj: r.limits.lowestOOMScoreAdj, SwapLimits: r.limits.swap,
	}
	sc := pod.Security(p, c)
	var err error
	if m.PageSizes, err = r.pageSizes(p, c); err != nil {
		return m, err
	}
	if m.ProcessLabel, m.FileLabel, err = seLinux(p.UID, sc.SELinuxOptions); err != nil {
		return m, err
	}
	if pod.Privileged(c) || addsAll(sc.Capabilities) {
		if m.Capabilities, err = cap.Current(); err != nil {
			return m, fmt.Errorf("reading the capabilities of this machine: %w", err)
		}
	}
	if pod.Privileged(c) {
		if m.Devices, err = containerdoci.HostDevices(); err != nil {
			return m, fmt.Errorf("listing the devices of this machine: %w", err)
		}
		m.AppArmorProfile, err = appArmor(unconfined(), apparmor.HostSupports())
		return m, err
	}
	if s := sc.SeccompProfile; s != nil && s.Type == v1.SeccompProfileTypeLocalhost && s.LocalhostProfile != nil {
		if m.LocalhostSeccomp, err = r.localhostSeccomp(*s.LocalhostProfile); err != nil {
			return m, err
		}
	}
	m.AppArmorProfile, err = appArmor(sc.AppArmorProfile, apparmor.HostSupports())
	return m, err
}

// addsAll reports whether the capability ALL is added.
func addsAll(c *v1.Capabilities) bool {
	return c != nil && slices.ContainsFunc(c.Add, func(name v1.Capability) bool {
		return strings.EqualFold(string(name), "ALL")
	})
}

// localhostSeccomp reads a seccomp profile of the node's administrator. name is a relative path
// that does not leave its directory, which validation has checked.
func (r *Runtime) localhostSeccomp(name string) (*specs.LinuxSeccomp, error) {
	path := filepath.Join(r.Dirs.Seccomp(), name)
	text, err := os.ReadFile(path) // trusted: the administrator's
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("seccomp profile %s is not there", path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the seccomp profile: %w", err)
	}
	var profile specs.LinuxSeccomp
	if err := json.Unmarshal(text, &profile); err != nil {
		return nil, fmt.Errorf("seccomp profile %s: %w", path, err)
	}
	if profile.DefaultAction == "" { // for example {}: the container would have no filter
		return nil, fmt.Errorf("seccomp profile %s: defaultAction is missing", path)
	}
	return &profile, nil
}

// appArmorDefault is the name under which podrun loads the AppArmor profile of RuntimeDefault.
const appArmorDefault = "podrun-default"

func unconfined() *v1.AppArmorProfile {
	return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
}

// appArmor returns the name of the container's AppArmor profile. If AppArmor is in use, a container
// that requests none gets the default profile, as in Kubernetes; if it is not in use, requesting a
// profile is an error.
func appArmor(profile *v1.AppArmorProfile, inUse bool) (string, error) {
	if !inUse {
		if profile == nil || profile.Type == v1.AppArmorProfileTypeUnconfined {
			return "", nil
		}
		return "", fmt.Errorf("appArmorProfile %s: AppArmor is not in use on this machine", profile.Type)
	}
	switch {
	case profile == nil || profile.Type == v1.AppArmorProfileTypeRuntimeDefault:
		if err := contribapparmor.LoadDefaultProfile(appArmorDefault); err != nil {
			return "", fmt.Errorf("loading the AppArmor profile %s: %w", appArmorDefault, err)
		}
		return appArmorDefault, nil
	case profile.Type == v1.AppArmorProfileTypeLocalhost && profile.LocalhostProfile != nil:
		loaded, err := os.ReadFile("/sys/kernel/security/apparmor/profiles") // trusted: the kernel's
		if err != nil {
			return "", fmt.Errorf("listing the loaded AppArmor profiles: %w", err)
		}
		for line := range strings.Lines(string(loaded)) {
			if strings.HasPrefix(line, *profile.LocalhostProfile+" (") {
				return *profile.LocalhostProfile, nil
			}
		}
		return "", fmt.Errorf("AppArmor profile %q is not loaded", *profile.LocalhostProfile)
	default:
		return "unconfined", nil
	}
}

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
