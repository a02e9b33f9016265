package convert

import (
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys/excerpt"
)

// compose converts a compose file: a pod for each service, named as the service, so that services find
// each other by the names that they use already.
func (c *converter) compose(file map[string]any) {
	if err := c.interpolate(file); err != nil {
		c.fail("compose", err)
		return
	}
	tree := file
	for _, key := range sorted(tree) {
		switch {
		case key == "services" || key == "name" || key == "version" || key == "volumes" || strings.HasPrefix(key, "x-"):
		case key == "networks":
			c.drop("compose", key, "all pods are in one network")
		case key == "secrets" || key == "configs": // with the services that use them
		default:
			c.drop("compose", key, "is not known")
		}
	}
	for _, name := range sorted(at(tree, "volumes")) {
		if options := at(tree, "volumes", name); len(options) > 0 {
			c.drop("compose", "volumes."+name, "its options: the volume is the claim "+name+", a directory of podrun")
		}
	}
	services := at(tree, "services")
	followers := followersOf(services)
	for _, name := range sorted(services) {
		service, is := services[name].(map[string]any)
		if !is {
			c.fail("service "+name, fmt.Errorf("is not an object"))
			continue
		}
		c.service(name, service, tree, followers[name])
	}
}

// service is a service of a compose file while it becomes a pod.
type service struct {
	*converter
	// title names the service in messages.
	title string
	// tree has the fields that are not converted yet; file is the whole file.
	tree, file map[string]any
	pod        *v1.Pod
	main       *v1.Container
	errs       []error
	// variables are the places of variables in the container's list, by name.
	variables map[string]int
}

// converted are the fields of services, in the order in which they are converted.
func converted() []struct {
	name string
	to   func(*service, any)
} {
	type field = struct {
		name string
		to   func(*service, any)
	}
	texts := func(to func(s *service, text string)) func(*service, any) {
		return func(s *service, v any) { to(s, scalar(v)) }
	}
	return []field{
		{"image", texts(func(s *service, v string) { s.main.Image = v })},
		{"entrypoint", func(s *service, v any) { s.main.Command = escapedAll(s.words("entrypoint", v)) }},
		{"command", func(s *service, v any) { s.main.Args = escapedAll(s.words("command", v)) }},
		{"env_file", setEnvFiles},
		{"environment", (*service).environment},
		{"ports", setPorts},
		{"expose", func(*service, any) {}}, // pods reach each other's ports in any case
		{"volumes", setVolumes},
		{"tmpfs", setTmpfs},
		{"shm_size", setShm},
		{"secrets", func(s *service, v any) { s.files("secrets", "/run/secrets/", v) }},
		{"configs", func(s *service, v any) { s.files("configs", "/", v) }},
		{"restart", setRestart},
		{"depends_on", setDependsOn},
		{"healthcheck", setHealthcheck},
		{"hostname", texts(func(s *service, v string) { s.pod.Spec.Hostname = v })},
		{"working_dir", texts(func(s *service, v string) { s.main.WorkingDir = v })},
		{"user", setUser},
		{"group_add", setGroups},
		{"labels", (*service).labels},
		{"annotations", (*service).annotations},
		{"privileged", func(s *service, v any) { s.security().Privileged = truth(v) }},
		{"read_only", func(s *service, v any) { s.security().ReadOnlyRootFilesystem = truth(v) }},
		{"cap_add", func(s *service, v any) { s.capabilities().Add = s.caps(v) }},
		{"cap_drop", func(s *service, v any) { s.capabilities().Drop = s.caps(v) }},
		{"security_opt", setSecurityOpt},
		{"network_mode", setNetworkMode},
		{"pid", func(s *service, v any) { s.host("pid", v, &s.pod.Spec.HostPID) }},
		{"ipc", func(s *service, v any) { s.host("ipc", v, &s.pod.Spec.HostIPC) }},
		{"extra_hosts", setExtraHosts},
		{"dns", func(s *service, v any) { s.dns().Nameservers = list(v) }},
		{"dns_search", func(s *service, v any) { s.dns().Searches = list(v) }},
		{"sysctls", setSysctls},
		{"stop_grace_period", setGrace},
		{"stop_signal", setStopSignal},
		{"stdin_open", func(s *service, v any) { s.main.Stdin = *truth(v) }},
		{"tty", func(s *service, v any) { s.main.TTY = *truth(v) }},
		{"pull_policy", setPullPolicy},
		{"deploy", setDeploy},
		{"mem_limit", func(s *service, v any) { s.resource(&s.main.Resources.Limits, "memory", "mem_limit", v) }},
		{"mem_reservation", func(s *service, v any) {
			s.resource(&s.main.Resources.Requests, "memory", "mem_reservation", v)
		}},
		{"cpus", func(s *service, v any) { s.resource(&s.main.Resources.Limits, "cpu", "cpus", v) }},
	}
}

// notConverted says of fields of services why they are left out.
var notConverted = map[string]string{
	"build":          "podrun builds no images; build it, and name it with image",
	"networks":       "all pods are in one network",
	"container_name": "a container is named after its service",
	"links":          "pods find each other by their names",
	"logging":        "see --container-log-max-size",
	"profiles":       "the pod always runs; leave its manifest out instead",
	"init":           "set spec.shareProcessNamespace if processes are left unreaped",
	"scale":          "one pod is made; copy it under other names for more",
	"devices":        "see the devices of --node-config, or use privileged",
	"ulimits":        "a pod has no such field",
	"extends":        "write the service out first, with docker compose config",
	"platform":       "the image is that of this machine",
}

// service converts one service, for which others wait.
func (c *converter) service(name string, tree, file map[string]any, others followers) {
	title := excerpt.Of("service "+name, maxName)
	p := &v1.Pod{}
	p.APIVersion, p.Kind, p.Name = "v1", "Pod", strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if p.Name != name {
		c.drop(title, "name", "becomes "+p.Name+": others do not find it by "+name)
	}
	p.Spec.Containers = []v1.Container{{Name: p.Name}}
	p.Spec.RestartPolicy = v1.RestartPolicyNever // as compose, where nothing else is said
	given := tree["restart"] != nil
	p.Spec.EnableServiceLinks = nil
	s := &service{
		converter: c, title: title, tree: tree, file: file, pod: p, main: &p.Spec.Containers[0],
		variables: map[string]int{},
	}
	for _, field := range converted() {
		v := tree[field.name]
		if why := unreadable(field.name, v); why != "" {
			s.fail(field.name, why)
		} else if v != nil {
			field.to(s, v)
		}
		delete(tree, field.name)
	}
	s.follow(given, others)
	for _, field := range sorted(tree) {
		if why := notConverted[field]; why != "" {
			s.drop(field, why)
		} else if !strings.HasPrefix(field, "x-") {
			s.drop(field, "is not converted")
		}
	}
	if s.main.Image == "" {
		s.fail("image", "there is none, and podrun builds no images")
	}
	if len(s.errs) > 0 {
		for _, err := range s.errs {
			c.fail(title, err)
		}
		return
	}
	c.add(title, p)
}

func (s *service) drop(field, why string) { s.converter.drop(s.title, field, why) }

func (s *service) fail(field, why string) { s.errs = append(s.errs, fmt.Errorf("%s: %s", field, why)) }

// words are a command: a list, or a text that is split as a shell does.
func (s *service) words(field string, v any) []string {
	text, is := v.(string)
	if !is {
		return list(v)
	}
	all, err := split(text)
	if err != nil {
		s.fail(field, err.Error())
	}
	return all
}

// escaped keeps Kubernetes from replacing $(NAME) and $$ in a text, which compose does not do.
func escaped(text string) string {
	var out strings.Builder
	for i := range len(text) {
		out.WriteByte(text[i])
		if text[i] == '$' && i+1 < len(text) && (text[i+1] == '$' || text[i+1] == '(') {
			out.WriteByte('$')
		}
	}
	return out.String()
}

// escapedAll returns the words of a command escaped.
func escapedAll(words []string) []string {
	var all []string
	for _, word := range words {
		all = append(all, escaped(word))
	}
	return all
}

func (s *service) environment(v any) {
	tree, _ := v.(map[string]any)
	for _, one := range pairs(v) {
		value, given := one.value, one.given
		if !single(tree[one.name]) {
			s.fail("environment."+one.name, "must be a text")
			continue
		}
		if !given { // from the environment of compose
			if value, given = s.lookup(one.name); !given {
				s.drop("environment."+one.name, "has no value here")
				continue
			}
		}
		at, known := s.variables[one.name]
		if !known {
			at = len(s.main.Env)
			s.variables[one.name] = at
			s.main.Env = append(s.main.Env, v1.EnvVar{Name: one.name})
		}
		s.main.Env[at].Value = escaped(value)
	}
}

func setEnvFiles(s *service, v any) {
	for _, one := range listOf(v) {
		path := scalar(one)
		if object, is := one.(map[string]any); is {
			path = text(object, "path")
		}
		data, err := s.readNamed(s.absolute(path))
		if err != nil {
			s.fail("env_file", err.Error())
			continue
		}
		for _, line := range strings.Split(string(data), "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			name, value, given := strings.Cut(strings.TrimPrefix(line, "export "), "=")
			s.environment(map[string]any{strings.TrimSpace(name): variable(unquoted(strings.TrimSpace(value)), given)})
		}
	}
}

// variable is the value of a variable in a tree; nil if none is given.
func variable(value string, given bool) any {
	if !given {
		return nil
	}
	return value
}

func setRestart(s *service, v any) {
	policy, _, _ := strings.Cut(scalar(v), ":")
	switch policy {
	case "no", "false": // no without quotes, as decode reads it
	case "always", "unless-stopped":
		s.pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	case "on-failure":
		s.pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
		if policy != scalar(v) {
			s.drop("restart", "on-failure has no limit of attempts here")
		}
	default:
		s.fail("restart", scalar(v)+" is not known")
	}
}

func (s *service) annotate(key, value string) {
	if s.pod.Annotations == nil {
		s.pod.Annotations = map[string]string{}
	}
	s.pod.Annotations[key] = value
}

// labels become annotations: those of Kubernetes may not have most values.
func (s *service) labels(v any) { s.annotations(v) }

func (s *service) annotations(v any) {
	for _, one := range pairs(v) {
		s.annotate(one.name, one.value)
	}
}

// files makes files of secrets or configs, which the top of the file defines.
func (s *service) files(kind, dir string, v any) {
	for i, one := range listOf(v) {
		name, target := scalar(one), ""
		if object, is := one.(map[string]any); is {
			name, target = text(object, "source"), text(object, "target")
		}
		if target == "" {
			target = name
		}
		if !filepath.IsAbs(target) {
			target = dir + target
		}
		from := text(at(s.file, kind, name), "file")
		if from == "" {
			s.drop(fmt.Sprintf("%s[%d]", kind, i), name+" is no file; write a Secret or ConfigMap")
			continue
		}
		s.hostPath(fmt.Sprintf("%s-%d", strings.TrimSuffix(kind, "s"), i), s.absolute(from), target, true)
	}
}
