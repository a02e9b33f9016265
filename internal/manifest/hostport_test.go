package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// TestHostPortTwice: a host port that leads to two ports of the pod is refused, however its address is written, also if
// a sidecar has one of them. Else what Kubernetes accepts is accepted.
func TestHostPortTwice(t *testing.T) {
	t.Parallel()
	const init = "  initContainers:\n  - {name: b, image: i, "
	for name, c := range map[string]struct{ first, second, other, want string }{
		"all addresses, by IPv4":  {"", "0.0.0.0", "", `"0.0.0.0:8080/TCP"`},
		"all addresses, by IPv6":  {`"::"`, "", "", `"8080/TCP"`},
		"IPv4 written as IPv6":    {"127.0.0.1", `"::ffff:127.0.0.1"`, "", `"::ffff:127.0.0.1:8080/TCP"`},
		"two forms of an address": {`"::1"`, `"0:0::1"`, "", `"0:0::1:8080/TCP"`},
		"a sidecar":               {"", "", init + "restartPolicy: Always, ", `"8080/TCP"`},
		"an init container":       {"", "", init, ""},
		"one address and all":     {"", "127.0.0.1", "", ""},
		"two families":            {"0.0.0.0", `"::"`, "", ""},
	} {
		for second, want := range map[int]string{80: "", 81: c.want} {
			text := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
			const port = "{hostPort: 8080, hostIP: %s, containerPort: %d}"
			ports := []string{fmt.Sprintf(port, c.first, 80), fmt.Sprintf(port, c.second, second)}
			if c.other == "" {
				text += "  - {name: a, image: i, ports: [" + strings.Join(ports, ", ") + "]}\n"
			} else {
				text += "  - {name: a, image: i, ports: [" + ports[0] + "]}\n" + c.other + "ports: [" + ports[1] + "]}\n"
			}
			if want != "" {
				want = "spec.containers: Invalid value: " + want + ": this host port leads to two ports of the pod"
			}
			_, err := Load([]byte(text), options("a.yaml"))
			if got := fmt.Sprint(err); !strings.Contains(got, want) || (err != nil) != (want != "") {
				t.Errorf("%s, to %d: got %s, want %q", name, second, got, want)
			}
		}
	}
}
