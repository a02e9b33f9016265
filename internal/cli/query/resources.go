package query

import (
	"fmt"
	"slices"
	"strings"
)

// IsPods reports whether a resource type is pods, or all where only pods are meant.
func IsPods(kind string) bool { return slices.Contains([]string{"pods", "pod", "po", "all"}, kind) }

// IsNode reports whether a resource type is the node.
func IsNode(kind string) bool { return slices.Contains([]string{"nodes", "node", "no"}, kind) }

// IsEvents reports whether a resource type is events.
func IsEvents(kind string) bool { return slices.Contains([]string{"events", "event", "ev"}, kind) }

// IsPlugins reports whether a resource type is the plugins of serve.
func IsPlugins(kind string) bool { return kind == "plugins" || kind == "plugin" }

// IsVolumes reports whether a resource type is the volumes of persistentVolumeClaims.
func IsVolumes(kind string) bool {
	return slices.Contains([]string{
		"volumes", "volume", "pvc", "persistentvolumeclaims", "persistentvolumeclaim",
	}, kind)
}

// instead says what podrun has in place of resource types of Kubernetes, by the names that kubectl knows.
var instead = []struct{ kinds, text string }{
	{"cm configmap configmaps secret secrets", "a ConfigMap or Secret is a document in a manifest beside the pods that " +
		"use it; podrun validate checks it, and podrun diff shows which pods an edit of it changes"},
	{"no node nodes", "podrun runs on one node; podrun get pods -o wide shows its name, podrun top node what it uses"},
	{"ns namespace namespaces", "a namespace needs no creation; podrun get pods -A lists the pods of all"},
	{"svc service services ep endpoints ing ingress ingresses", "podrun has no Services; pods find each other by " +
		"their names, and hostPort or podrun port-forward makes a port reachable"},
	{"image images", "podrun images lists images"},
	{"pv persistentvolume persistentvolumes", "podrun get volumes lists the volumes of persistentVolumeClaims"},
}

// onlyListed says how something is listed that is neither a pod nor a workload, and that other commands, and names, are
// not for; "" if that is not so.
func onlyListed(kind string) string {
	for what, is := range map[string]func(string) bool{"volumes": IsVolumes, "plugins": IsPlugins, "events": IsEvents} {
		if is(strings.ToLower(kind)) {
			return fmt.Sprintf("%s are not named or described one by one: podrun get %s -o wide lists all of them", what, what)
		}
	}
	return ""
}

// insteadOf says what podrun has in place of a resource type that it does not know.
func insteadOf(kind string) string {
	if text := onlyListed(kind); text != "" {
		return text
	}
	for _, i := range instead {
		if slices.Contains(strings.Fields(i.kinds), strings.ToLower(kind)) {
			return i.text
		}
	}
	text := "podrun has " + strings.Join(Listed(), ", ") + "; podrun images lists images"
	if near := nearest(kind, Listed()); near != "" {
		text = fmt.Sprintf("did you mean %s? %s", near, text)
	}
	return text
}

// orPod says how a pod is named, if the only argument is no resource type of Kubernetes, and so may be a pod.
func orPod(args []string) string {
	if len(args) > 1 || slices.ContainsFunc(instead, func(i struct{ kinds, text string }) bool {
		return slices.Contains(strings.Fields(i.kinds), strings.ToLower(args[0]))
	}) {
		return ""
	}
	return "; a pod of that name is pod/" + args[0]
}

// PodNames returns the names in the arguments `pods NAME...` or `pods/NAME...`. Those of workloads have their
// type, `deployment/NAME`.
func PodNames(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if kind, names, ok := WorkloadArgs(args); ok {
		names = slices.Clone(names) // they may be args
		for i := range names {
			names[i] = strings.ToLower(string(kind)) + "/" + names[i]
		}
		return names, nil
	}
	if !strings.Contains(args[0], "/") {
		if !IsPods(args[0]) {
			return nil, fmt.Errorf("unknown resource type %q: %s%s", args[0], insteadOf(args[0]), orPod(args))
		}
		return args[1:], nil
	}
	var names []string
	for _, arg := range args {
		kind, name, _ := strings.Cut(arg, "/")
		if text := onlyListed(kind); text != "" {
			return nil, fmt.Errorf("unknown resource %q: %s", arg, text)
		}
		if !IsPods(kind) || name == "" {
			return nil, fmt.Errorf("unknown resource %q: must be pod/NAME", arg)
		}
		names = append(names, name)
	}
	return names, nil
}
