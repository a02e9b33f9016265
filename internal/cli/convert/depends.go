package convert

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/excerpt"
)

// followers are the services that wait for one: the first that starts when it runs or is healthy, and the first that
// starts when it has ended; "" if there is none.
type followers struct{ ofStart, ofEnd string }

// followersOf returns the services that wait for each service.
func followersOf(services map[string]any) map[string]followers {
	all := map[string]followers{}
	for _, name := range sorted(services) {
		v, shown := at(services, name)["depends_on"], excerpt.Of(name, maxName) // in the messages for many services
		for _, other := range dependsOn(v) {
			conditions, _ := v.(map[string]any)
			f := all[other]
			first := &f.ofStart
			if text(at(conditions, other), "condition") == "service_completed_successfully" {
				first = &f.ofEnd
			}
			if *first == "" {
				*first = shown
			}
			all[other] = f
		}
	}
	return all
}

// dependsOn returns the names of the services in the field depends_on.
func dependsOn(v any) []string {
	if conditions, is := v.(map[string]any); is {
		return sorted(conditions)
	}
	return list(v)
}

// setDependsOn makes the pod start after others: when services are ready and jobs have succeeded.
func setDependsOn(s *service, v any) {
	names := dependsOn(v)
	for i, name := range names {
		names[i] = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	if len(names) > 0 {
		s.annotate(pod.AnnotationAfter, strings.Join(names, ","))
	}
}

// follow makes others start when this service has started, where compose does. A pod counts as a service that starts
// only if its restartPolicy is Always; others wait for the end of any other one. given is set if the service has the
// field restart.
func (s *service) follow(given bool, others followers) {
	policy := &s.pod.Spec.RestartPolicy
	switch {
	case others.ofStart == "" || *policy == v1.RestartPolicyAlways:
	case others.ofEnd != "":
		s.drop("restart", others.ofStart+" starts only after this has ended with success, because "+others.ofEnd+
			" waits for that; leave one of the two depends_on out")
	case given:
		s.drop("restart", others.ofStart+" starts only after this has ended with success; with restart: always, "+
			"when this is ready")
	default:
		*policy = v1.RestartPolicyAlways
		s.drop("restart", "becomes always, so that "+others.ofStart+" starts when this is ready and not after its end; "+
			"for a job, set condition: service_completed_successfully in depends_on of "+others.ofStart)
	}
}
