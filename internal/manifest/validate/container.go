package validate

import (
	"fmt"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/pod"
)

// maxContainers is how many containers a pod may have, init containers among them. Kubernetes has no such limit, but
// one for the size of what its API server keeps; each is a process, and its row in many places.
const maxContainers = 1000

// validateContainers validates the containers and init containers of a pod.
func validateContainers(s *v1.PodSpec, volumes sets.Set[string], spec *field.Path) field.ErrorList {
	path := spec.Child("containers")
	if number := len(s.Containers) + len(s.InitContainers); number > maxContainers {
		return field.ErrorList{field.TooMany(path, number, maxContainers)} // one error, not one for each
	}
	if len(s.Containers) == 0 {
		return append(validateInits(s, sets.New[string](), volumes, spec.Child("initContainers")),
			field.Required(path, ""))
	}
	var errs field.ErrorList
	names, hostPorts := sets.New[string](), sets.New[string]()
	for i := range s.Containers {
		errs = append(errs, validateName(s.Containers[i].Name, names, path.Index(i).Child("name"))...)
		errs = append(errs, validateContainer(s, &s.Containers[i], volumes, hostPorts, path.Index(i))...)
		errs = append(errs, validateWatched(s, &s.Containers[i], path.Index(i))...)
		errs = append(errs, validateRules(
			s.Containers[i].RestartPolicyRules, path.Index(i).Child("restartPolicyRules"))...)
	}
	errs = append(errs, validateInits(s, names, volumes, spec.Child("initContainers"))...)
	if len(errs) > 0 {
		return errs
	}
	return validateTargets(pod.HostPorts(&v1.Pod{Spec: *s}), path)
}

// validateTargets validates that no host port leads to two ports of the pod. Kubernetes accepts that if the addresses
// are written in different ways, or a sidecar has one of them; which of the two is reached depends on its network.
func validateTargets(ports []pod.HostPort, path *field.Path) field.ErrorList {
	targets := make(map[pod.HostPort]uint16, len(ports))
	for _, port := range ports {
		addresses := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		if addr, err := netip.ParseAddr(port.HostIP); err == nil {
			addresses = []netip.Addr{addr.Unmap()}
		}
		for _, addr := range addresses {
			at := pod.HostPort{Protocol: port.Protocol, HostIP: addr.String(), Port: port.Port}
			if target, twice := targets[at]; twice && target != port.ContainerPort {
				return field.ErrorList{field.Invalid(path, port.String(), "this host port leads to two ports of the pod")}
			}
			targets[at] = port.ContainerPort
		}
	}
	return nil
}

// validateInits validates init containers; names has the names of the pod's other containers.
func validateInits(s *v1.PodSpec, names, volumes sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range s.InitContainers {
		c, at := &s.InitContainers[i], path.Index(i)
		errs = append(errs, validateName(c.Name, names, at.Child("name"))...)
		// Init containers run one after the other, so they may use the same host port.
		errs = append(errs, validateContainer(s, c, volumes, sets.New[string](), at)...)
		if c.RestartPolicy != nil {
			errs = append(errs, validateRules(c.RestartPolicyRules, at.Child("restartPolicyRules"))...)
		}
		if pod.IsSidecar(c) {
			errs = append(errs, validateWatched(s, c, at)...)
			continue
		}
		for j, policy := range c.ResizePolicy {
			if policy.RestartPolicy == v1.RestartContainer {
				errs = append(errs, field.Invalid(
					at.Child("resizePolicy").Index(j).Child("restartPolicy"), policy.RestartPolicy,
					"must not be set to 'RestartContainer' for init containers without restartPolicy=Always"))
			}
		}
		for name, given := range map[string]bool{
			"lifecycle": c.Lifecycle != nil, "livenessProbe": c.LivenessProbe != nil,
			"readinessProbe": c.ReadinessProbe != nil, "startupProbe": c.StartupProbe != nil,
		} {
			if given {
				errs = append(errs, field.Forbidden(at.Child(name),
					"may not be set for init containers without restartPolicy=Always"))
			}
		}
	}
	return errs
}

// validateName validates the name of a container, which must not be in taken, and adds it to taken.
func validateName(name string, taken sets.Set[string], path *field.Path) field.ErrorList {
	defer taken.Insert(name)
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "")}
	case taken.Has(name):
		return field.ErrorList{field.Duplicate(path, name)}
	}
	return invalid(path, name, validation.IsDNS1123Label(name))
}

// validateContainer validates the fields that are valid for all kinds of containers, without the
// name.
func validateContainer(
	s *v1.PodSpec,
	c *v1.Container,
	volumes, hostPorts sets.Set[string],
	at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(at.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(at.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, supported(c.ImagePullPolicy, at.Child("imagePullPolicy"),
		v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	errs = append(errs, supported(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"),
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, s.HostNetwork, hostPorts, at.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, s.Volumes, at.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, validateMounts(c, volumes, at.Child("volumeMounts"))...)
	errs = append(errs, validateResources(&c.Resources, at.Child("resources"))...)
	errs = append(errs, validateResizePolicy(s, c, at.Child("resizePolicy"))...)
	errs = append(errs, validateSecurity(c.SecurityContext, hostUsers(s), at.Child("securityContext"))...)
	if c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0 {
		errs = append(errs, field.Required(at.Child("restartPolicy"),
			"must specify restartPolicy when restart rules are used"))
	}
	if c.RestartPolicy != nil {
		errs = append(errs, oneOf(*c.RestartPolicy, at.Child("restartPolicy"),
			v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure)...)
	}
	return errs
}

func validateRules(rules []v1.ContainerRestartRule, path *field.Path) field.ErrorList {
	const mostRules, mostCodes = 20, 255
	var errs field.ErrorList
	if len(rules) > mostRules {
		errs = append(errs, field.TooMany(path, len(rules), mostRules))
	}
	for i, rule := range rules {
		at := path.Index(i)
		errs = append(errs, oneOf(rule.Action, at.Child("action"), v1.ContainerRestartRuleActionRestart,
			v1.ContainerRestartRuleActionRestartAllContainers)...)
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, oneOf(rule.ExitCodes.Operator, at.Child("exitCodes", "operator"),
			v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(rule.ExitCodes.Values); n > mostCodes {
			errs = append(errs, field.TooMany(at.Child("exitCodes", "values"), n, mostCodes))
		}
	}
	return errs
}

// validatePorts validates the ports of a container. It adds the host ports to taken, as
// protocol/address/number; one that is in taken already is an error.
func validatePorts(
	ports []v1.ContainerPort,
	hostNetwork bool,
	taken sets.Set[string],
	path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, port := range ports {
		at := path.Index(i)
		if port.Name != "" {
			bad := validation.IsValidPortName(port.Name)
			errs = append(errs, invalid(at.Child("name"), port.Name, bad)...)
			if len(bad) == 0 && names.Has(port.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), port.Name))
			}
			names.Insert(port.Name)
		}
		if port.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, invalid(at.Child("containerPort"), port.ContainerPort,
				validation.IsValidPortNum(int(port.ContainerPort)))...)
		}
		errs = append(errs, supported(port.Protocol, at.Child("protocol"),
			v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
		if _, err := netip.ParseAddr(port.HostIP); port.HostIP != "" && err != nil {
			errs = append(errs, field.Invalid(at.Child("hostIP"), port.HostIP, "must be an IP address"))
		}
		if port.HostPort == 0 {
			continue
		}
		bad := validation.IsValidPortNum(int(port.HostPort))
		errs = append(errs, invalid(at.Child("hostPort"), port.HostPort, bad)...)
		switch {
		case len(bad) > 0:
		case hostNetwork && port.HostPort != port.ContainerPort:
			errs = append(errs, field.Invalid(at.Child("hostPort"), port.HostPort,
				"must match `containerPort` when `hostNetwork` is true"))
		}
		place := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
		if taken.Has(place) {
			errs = append(errs, field.Duplicate(at.Child("hostPort"), place))
		}
		taken.Insert(place)
	}
	return errs
}
