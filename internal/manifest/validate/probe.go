package validate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateWatched validates probes and lifecycle hooks, which only long-running containers can
// have: all but init containers that are no sidecars.
func validateWatched(s *v1.PodSpec, c *v1.Container, at *field.Path) field.ErrorList {
	errs := validateLifecycle(c.Lifecycle, s, at.Child("lifecycle"))
	for _, one := range []struct {
		name  string
		probe *v1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if one.probe == nil {
			continue
		}
		path := at.Child(one.name)
		errs = append(errs, validateProbe(one.probe, path)...)
		switch {
		case one.probe != c.ReadinessProbe && one.probe.SuccessThreshold != 1:
			errs = append(errs, field.Invalid(path.Child("successThreshold"), one.probe.SuccessThreshold, "must be 1"))
		case one.probe == c.ReadinessProbe && one.probe.TerminationGracePeriodSeconds != nil:
			errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"),
				*one.probe.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
		}
	}
	return errs
}

func validateProbe(p *v1.Probe, path *field.Path) field.ErrorList {
	errs := validateAction(action{exec: p.Exec, http: p.HTTPGet, tcp: p.TCPSocket, grpc: p.GRPC}, nil, path)
	for _, one := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if one.value < 0 {
			errs = append(errs, field.Invalid(path.Child(one.name), one.value, "must be greater than or equal to 0"))
		}
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		errs = append(errs,
			field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return errs
}

func validateLifecycle(l *v1.Lifecycle, s *v1.PodSpec, path *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	for _, one := range []struct {
		name string
		hook *v1.LifecycleHandler
	}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
		if h := one.hook; h != nil {
			errs = append(errs, validateAction(
				action{exec: h.Exec, http: h.HTTPGet, tcp: h.TCPSocket, sleep: h.Sleep},
				s.TerminationGracePeriodSeconds,
				path.Child(one.name),
			)...)
		}
	}
	switch at := path.Child("stopSignal"); {
	case l.StopSignal == nil:
	case s.OS == nil:
		errs = append(errs, field.Forbidden(at, "may not be set for containers with empty `spec.os.name`"))
	case !isSignal(string(*l.StopSignal)):
		errs = append(errs, field.NotSupported(at, *l.StopSignal,
			[]string{"Linux' signals by name, as SIGTERM or SIGRTMIN+3"}))
	}
	return errs
}

// action is the handler of a probe or a hook. Exactly one field must be set.
type action struct {
	exec  *v1.ExecAction
	http  *v1.HTTPGetAction
	tcp   *v1.TCPSocketAction
	grpc  *v1.GRPCAction
	sleep *v1.SleepAction
}

// validateAction validates the handler of a probe or a hook. grace is the grace period of the pod,
// which bounds a sleep; nil: no bound.
func validateAction(a action, grace *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	given := 0
	one := func(name string, judge func(*field.Path) field.ErrorList) {
		if given++; given > 1 {
			errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 handler type"))
			return
		}
		errs = append(errs, judge(path.Child(name))...)
	}
	if a.exec != nil {
		one("exec", func(at *field.Path) field.ErrorList {
			if len(a.exec.Command) == 0 {
				return field.ErrorList{field.Required(at.Child("command"), "")}
			}
			return nil
		})
	}
	if a.http != nil {
		one("httpGet", func(at *field.Path) field.ErrorList { return validateHTTPGet(a.http, at) })
	}
	if a.tcp != nil {
		one("tcpSocket", func(at *field.Path) field.ErrorList { return validatePort(a.tcp.Port, at.Child("port")) })
	}
	if a.grpc != nil {
		one("grpc", func(at *field.Path) field.ErrorList {
			return validatePort(intstr.FromInt32(a.grpc.Port), at.Child("port"))
		})
	}
	if a.sleep != nil {
		one("sleep", func(at *field.Path) field.ErrorList {
			if grace == nil || a.sleep.Seconds >= 0 && a.sleep.Seconds <= *grace {
				return nil
			}
			return field.ErrorList{field.Invalid(at, a.sleep.Seconds,
				fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))}
		})
	}
	if given == 0 {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

func validateHTTPGet(h *v1.HTTPGetAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if h.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	}
	errs = append(errs, validatePort(h.Port, path.Child("port"))...)
	errs = append(errs, oneOf(h.Scheme, path.Child("scheme"), v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
	for _, header := range h.HTTPHeaders {
		errs = append(errs,
			invalid(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}

// validatePort validates a port number or name. As in Kubernetes, the container need not have a
// port of that name.
func validatePort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
	}
	return invalid(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
}

// isSignal reports whether name is the name of a Linux signal.
func isSignal(name string) bool {
	for base, most := range map[string]int{"SIGRTMIN+": 15, "SIGRTMAX-": 14} {
		if offset, found := strings.CutPrefix(name, base); found {
			n, err := strconv.Atoi(offset)
			return err == nil && n >= 1 && n <= most && strconv.Itoa(n) == offset
		}
	}
	return slices.Contains([]v1.Signal{
		v1.SIGABRT, v1.SIGALRM, v1.SIGBUS, v1.SIGCHLD, v1.SIGCLD, v1.SIGCONT, v1.SIGFPE, v1.SIGHUP,
		v1.SIGILL, v1.SIGINT, v1.SIGIO, v1.SIGIOT, v1.SIGKILL, v1.SIGPIPE, v1.SIGPOLL, v1.SIGPROF,
		v1.SIGPWR, v1.SIGQUIT, v1.SIGSEGV, v1.SIGSTKFLT, v1.SIGSTOP, v1.SIGSYS, v1.SIGTERM,
		v1.SIGTRAP, v1.SIGTSTP, v1.SIGTTIN, v1.SIGTTOU, v1.SIGURG, v1.SIGUSR1, v1.SIGUSR2,
		v1.SIGVTALRM, v1.SIGWINCH, v1.SIGXCPU, v1.SIGXFSZ, v1.SIGRTMIN, v1.SIGRTMAX,
	}, v1.Signal(name))
}
