package cli

import "strings"

// instead says what podrun has in place of commands of kubectl and podman that it does not have.
var instead = []struct{ commands, text string }{
	{"apply create run replace", "serve applies what is in its manifest directory by itself: copy the file there; " +
		"podrun diff -f FILE shows what that changes, podrun once -f FILE runs pods without serve"},
	{"edit patch set scale label annotate", "edit the pod's manifest, which podrun get pods -o wide names; " +
		"serve applies it, podrun diff shows what it changes"},
	{"rollout", "podrun restart POD restarts a pod; serve applies an edited manifest by itself"},
	{"rm stop kill drain", "remove the pod's manifest and serve stops the pod; podrun down stops pods that no process runs"},
	{"start", "podrun serve runs the pods of its manifests, podrun once runs pods once"},
	{"explain", "podrun validate FILE names each field that is wrong; docs/compat.md lists what podrun supports"},
	{"stats", "podrun top shows the CPU and memory usage of containers"},
	{"inspect", "podrun get pod NAME -o yaml shows a pod with its status"},
	{"pull", "podrun images pull IMAGE pulls an image"},
	{"load", "podrun images load FILE loads images"},
	{"save", "podrun images save IMAGE saves images"},
	{"rmi", "podrun images rm IMAGE removes an image"},
}

// InsteadOf returns what podrun has in place of a command that it does not have, or "" if nothing is known.
func InsteadOf(command string) string {
	for _, i := range instead {
		for _, c := range strings.Fields(i.commands) {
			if c == command {
				return i.text
			}
		}
	}
	return ""
}
