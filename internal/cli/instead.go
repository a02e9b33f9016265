package cli

import (
	"slices"
	"strings"
)

// instead says what podrun has in place of commands of kubectl and podman that it does not have.
var instead = []struct{ commands, text string }{
	{"apply create run replace kube play up", "serve applies what is in its manifest directory by itself: copy the file there; " +
		"podrun diff -f FILE shows what that changes, podrun once -f FILE runs pods without serve"},
	{"edit patch set scale label annotate", "edit the pod's manifest, which podrun get pods -o wide names; " +
		"serve applies it, podrun diff shows what it changes"},
	{"rollout", "serve applies an edited manifest by itself; podrun wait deployment/NAME --for=condition=Complete waits until " +
		"that is done, podrun history deployment/NAME and podrun undo deployment/NAME are about revisions, podrun restart " +
		"deployment/NAME restarts its pods"},
	{"rm stop kill drain", "remove the pod's manifest and serve stops the pod; podrun down stops pods that no process runs"},
	{"start", "podrun serve runs the pods of its manifests, podrun once runs pods once"},
	{"explain", "podrun validate FILE names each field that is wrong; docs/compat.md lists what podrun supports"},
	{"stats", "podrun top shows the CPU and memory usage of containers"},
	{"inspect", "podrun get pod NAME -o yaml shows a pod with its status"},
	{"pull", "podrun images pull IMAGE pulls an image"},
	{"load", "podrun images load FILE loads images"},
	{"save", "podrun images save IMAGE saves images"},
	{"debug", "podrun exec POD -- COMMAND runs a command in a container"},
	{"status", "podrun get pods lists the pods, podrun describe pod NAME shows one"},
	{"cluster-info api-resources api-versions auth config proxy",
		"podrun has no API server: podrun serve --listen serves pods, logs and metrics over HTTP"},
	{"cordon uncordon taint certificate autoscale expose", "podrun runs on one machine, without nodes and Services to manage"},
	{"rmi", "podrun images rm IMAGE removes an image"},
}

// insteadOfSub says what podrun has in place of subcommands that its commands do not have.
var insteadOfSub = []struct{ command, subcommands, text string }{
	{"volumes", "list ls get inspect describe show", "podrun get volumes lists volumes, -o wide with all that is known of them"},
	{"volumes", "delete remove del prune", "podrun volumes rm NAME removes a volume"},
	{"volumes", "create add", "a volume is made for the first pod whose manifest has its persistentVolumeClaim"},
}

// InsteadIn returns what podrun has in place of what a command, "podrun" or "podrun volumes", does not have, or "" if
// nothing is known.
func InsteadIn(command string, args []string) string {
	_, within, isSub := strings.Cut(command, " ")
	if !isSub {
		return InsteadOf(args[0], args[1:]...)
	}
	for _, i := range insteadOfSub {
		if i.command == within && slices.Contains(strings.Fields(i.subcommands), args[0]) {
			return i.text
		}
	}
	return ""
}

// insteadOfFlags says what podrun has in place of flags of kubectl and the kubelet that it does not have.
var insteadOfFlags = []struct{ flags, text string }{
	{"kubeconfig context cluster user server token as request-timeout", "podrun has no API server: it reads the state of this machine"},
	{"field-selector", "-l selects by labels; -o jsonpath='{.items[?(@.status.phase==\"Running\")].metadata.name}' by other fields"},
	{"label-columns L", "--show-labels shows all labels, -o custom-columns=NAME:.metadata.name,APP:.metadata.labels.app some"},
	{"template", "-o go-template=TEMPLATE"},
	{"containers", "podrun top lists the containers of each pod without a flag"},
	{"client", "podrun --version prints podrun's version alone"},
	{"watch-only output-watch-events", "-w lists the pods, and then each change"},
	{"limit-bytes", "--tail limits the lines, --since the time"},
	{"retries", "podrun cp reads and writes the container's files itself: there is no connection to retry"},
	{"config", "flags, and PODRUN_… variables for them; docs/from-kubelet.md has that of each field of a KubeletConfiguration"},
	{"pod-manifest-path staticPodPath", "--manifests names the directory of manifests"},
	{"hostname-override", "--node-name is the name of the node"},
	{"container-runtime-endpoint", "--containerd-address is containerd's socket"},
	{"read-only-port readOnlyPort", "--listen 127.0.0.1:10255 serves pods, logs and metrics"},
	{"manifest-url-headers", "--manifest-url-header 'NAME: VALUE' is a header of the requests to the URL"},
	{"force now cascade", "--grace-period 0 kills at once"},
}

// insteadOfFlag returns what podrun has in place of a flag, without its dashes, that it does not have, or ""
// if nothing is known.
func insteadOfFlag(flag string) string {
	for _, i := range insteadOfFlags {
		if slices.Contains(strings.Fields(i.flags), flag) {
			return i.text
		}
	}
	return ""
}

// InsteadOf returns what podrun has in place of a command that it does not have, with its arguments, or "" if nothing
// is known.
func InsteadOf(command string, args ...string) string {
	if text := rollout(args); command == "rollout" && text != "" {
		return text
	}
	for _, i := range instead {
		if slices.Contains(strings.Fields(i.commands), command) {
			return i.text
		}
	}
	return ""
}

// rollout returns the command for the arguments of kubectl rollout, SUBCOMMAND TYPE/NAME or SUBCOMMAND TYPE NAME; "" if
// they are others.
func rollout(args []string) string {
	if len(args) < 2 {
		return ""
	}
	named := strings.Join(args[1:], "/")
	_, name, _ := strings.Cut(named, "/")
	if name == "" || strings.Contains(name, "/") {
		return ""
	}
	switch args[0] {
	case "status":
		return "podrun wait " + named + " --for=condition=Complete"
	case "history", "undo", "restart":
		return "podrun " + args[0] + " " + named
	}
	return ""
}
