package validate

import (
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/pod"
)

// hostUsers reports whether the pod uses the host's user namespace.
func hostUsers(s *v1.PodSpec) bool { return s.HostUsers == nil || *s.HostUsers }

// validateHostUsers refuses the host's IPC, network and PID namespaces for a pod with a user
// namespace of its own.
func validateHostUsers(s *v1.PodSpec, at *field.Path) field.ErrorList {
	if hostUsers(s) {
		return nil
	}
	var errs field.ErrorList
	given := map[string]bool{"hostIPC": s.HostIPC, "hostNetwork": s.HostNetwork, "hostPID": s.HostPID}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] {
			errs = append(errs, field.Forbidden(at.Child(name), "cannot be used together with hostUsers: false"))
		}
	}
	return errs
}

func validatePodSecurity(s *v1.PodSpec, at *field.Path) field.ErrorList {
	sc := s.SecurityContext
	errs := validateHostUsers(s, at)
	at = at.Child("securityContext")
	errs = append(errs, validateID(sc.RunAsUser, validation.IsValidUserID, at.Child("runAsUser"))...)
	errs = append(errs, validateID(sc.RunAsGroup, validation.IsValidGroupID, at.Child("runAsGroup"))...)
	errs = append(errs, validateID(sc.FSGroup, validation.IsValidGroupID, at.Child("fsGroup"))...)
	if n := len(sc.SupplementalGroups); n > pod.MaxGroups {
		errs = append(errs, field.TooMany(at.Child("supplementalGroups"), n, pod.MaxGroups))
	}
	for i, group := range sc.SupplementalGroups {
		errs = append(errs,
			invalid(at.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group))...)
	}
	if policy := sc.SupplementalGroupsPolicy; policy != nil {
		errs = append(errs, oneOf(*policy, at.Child("supplementalGroupsPolicy"),
			v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)...)
	}
	if policy := sc.FSGroupChangePolicy; policy != nil {
		errs = append(errs,
			oneOf(*policy, at.Child("fsGroupChangePolicy"), v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)...)
	}
	if share := s.ShareProcessNamespace; share != nil && *share && s.HostPID {
		errs = append(errs,
			field.Invalid(field.NewPath("spec", "shareProcessNamespace"), true, "cannot be used together with hostPID"))
	}
	errs = append(errs, validateSysctls(s, at.Child("sysctls"))...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	return append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
}

// validateSysctls validates the names of sysctls. Which of them a pod may set is checked elsewhere:
// it depends on the node.
func validateSysctls(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, sysctl := range s.SecurityContext.Sysctls {
		at := at.Index(i).Child("name")
		switch name := sysctl.Name; {
		case name == "":
			errs = append(errs, field.Required(at, ""))
		case !isSysctlName(name):
			errs = append(errs, field.Invalid(at, name,
				"must be lower-case names joined by dots or slashes, of 253 characters at most"))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[sysctl.Name] = true
		switch ns := pod.SysctlNamespace(sysctl.Name); {
		case ns == "Net" && s.HostNetwork:
			errs = append(errs, field.Invalid(at, sysctl.Name, "cannot be set with hostNetwork: it is the machine's"))
		case ns == "IPC" && s.HostIPC:
			errs = append(errs, field.Invalid(at, sysctl.Name, "cannot be set with hostIPC: it is the machine's"))
		}
	}
	return errs
}

// isSysctlName reports whether name consists of parts that begin and end with a letter or digit, so
// that its path cannot leave /proc/sys.
func isSysctlName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for _, part := range strings.Split(strings.ReplaceAll(name, "/", "."), ".") {
		for i, r := range part {
			letter := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
			if !letter && (r != '-' && r != '_' || i == 0 || i == len(part)-1) {
				return false
			}
		}
		if part == "" {
			return false
		}
	}
	return true
}

// validateSecurity validates the security context of a container.
func validateSecurity(sc *v1.SecurityContext, hostUsers bool, at *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := validateID(sc.RunAsUser, validation.IsValidUserID, at.Child("runAsUser"))
	errs = append(errs, validateID(sc.RunAsGroup, validation.IsValidGroupID, at.Child("runAsGroup"))...)
	if mount := sc.ProcMount; mount != nil {
		errs = append(errs, oneOf(*mount, at.Child("procMount"), v1.DefaultProcMount, v1.UnmaskedProcMount)...)
		if hostUsers && *mount == v1.UnmaskedProcMount {
			errs = append(errs, field.Invalid(at.Child("procMount"), *mount, "needs hostUsers: false"))
		}
	}
	if c := sc.Capabilities; c != nil {
		errs = append(errs, validateCapabilities(c.Add, at.Child("capabilities", "add"))...)
		errs = append(errs, validateCapabilities(c.Drop, at.Child("capabilities", "drop"))...)
	}
	if escalation := sc.AllowPrivilegeEscalation; escalation != nil && !*escalation {
		switch {
		case sc.Privileged != nil && *sc.Privileged:
			errs = append(errs,
				field.Invalid(at, "allowPrivilegeEscalation: false", "cannot be used together with privileged: true"))
		case sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN"):
			errs = append(errs, field.Invalid(at, "allowPrivilegeEscalation: false",
				"cannot be used together with the capability CAP_SYS_ADMIN"))
		}
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	return append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
}

// validateCapabilities validates names of capabilities. It is stricter than Kubernetes, which
// accepts any name: a container would retain a capability whose name is misspelt in drop.
func validateCapabilities(names []v1.Capability, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		upper := strings.ToUpper(string(name))
		if upper != "ALL" && !pod.IsCapability("CAP_"+strings.TrimPrefix(upper, "CAP_")) {
			errs = append(errs, field.Invalid(at.Index(i), name, "there is no such capability"))
		}
	}
	return errs
}

func validateID(id *int64, judge func(int64) []string, at *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return invalid(at, *id, judge(*id))
}

func validateSeccomp(p *v1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := supported(p.Type, at.Child("type"), v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault,
		v1.SeccompProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	switch {
	case p.Type != v1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "only for type Localhost"))
		}
	case p.LocalhostProfile == nil:
		errs = append(errs, field.Required(local, "type Localhost requires it"))
	case path.IsAbs(*p.LocalhostProfile):
		errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "must be a relative path"))
	case slices.Contains(strings.Split(*p.LocalhostProfile, "/"), ".."):
		errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "must not contain '..'"))
	}
	return errs
}

func validateAppArmor(p *v1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := supported(p.Type, at.Child("type"), v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault,
		v1.AppArmorProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	const longest = 4095 // the kernel's PATH_MAX without the NUL
	switch name := p.LocalhostProfile; {
	case p.Type != v1.AppArmorProfileTypeLocalhost:
		if name != nil && len(errs) == 0 {
			errs = append(errs, field.Invalid(local, *name, "only for type Localhost"))
		}
	case name == nil || *name == "":
		errs = append(errs, field.Required(local, "type Localhost requires it"))
	case strings.TrimSpace(*name) != *name:
		errs = append(errs, field.Invalid(local, *name, "must not have leading or trailing whitespace"))
	case len(*name) > longest:
		errs = append(errs, field.TooLong(local, "", longest))
	}
	return errs
}

// oneOf returns a NotSupported error if value is not one of values, also if it is empty.
func oneOf[T ~string](value T, at *field.Path, values ...T) field.ErrorList {
	if slices.Contains(values, value) {
		return nil
	}
	slices.Sort(values)
	return field.ErrorList{field.NotSupported(at, value, values)}
}
