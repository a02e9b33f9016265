package bridge

import (
	"context"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/pod"
)

// sharing are pods that share a host port of TCP and one of UDP, each of which answers with the ID of its network.
type sharing struct {
	t             *testing.T
	host, outside netns.NsHandle
	br            *Bridge
}

func newSharing(t *testing.T) *sharing {
	s := &sharing{t: t, host: nettest.NewNS(t), outside: nettest.NewNS(t)}
	nettest.JoinOutside(t, s.host, s.outside)
	s.br = newBridge(t, t.TempDir())
	return s
}

// start sets up the network id of a pod, of a revision that is uid.
func (s *sharing) start(id, name, uid string) {
	s.t.Helper()
	p := nettest.PodWith(s.t, name, "8080:80/TCP", "5353:53/UDP")
	p.UID = types.UID(uid)
	p.Annotations = map[string]string{pod.AnnotationWorkload: "Deployment/web"}
	if name != "web-0" {
		p.Annotations[pod.AnnotationSurge] = "Deployment/web"
	}
	s.set(id, p)
}

func (s *sharing) set(id string, p *v1.Pod) {
	s.t.Helper()
	ns := nettest.NewNS(s.t)
	mustSetupPod(s.t, s.host, s.br, id, ns, p)
	nettest.ServeTCP(s.t, ns, ":80", id)
	serveUDP(s.t, ns, ":53", id)
}

func (s *sharing) end(ids ...string) {
	for _, id := range ids {
		nettest.Teardown(s.t, s.host, s.br, id)
	}
}

// answers fails the test if another network than want has the ports.
func (s *sharing) answers(want string) {
	s.t.Helper()
	for network, port := range map[string]string{"tcp": "8080", "udp": "5353"} {
		got, err := nettest.Ask(s.outside, network, "192.0.2.2:"+port)
		if err != nil || !strings.HasPrefix(got, want+" ") {
			s.t.Errorf("%s: %q, %v; want %s", network, got, err, want)
		}
	}
}

// TestSharedHostPortFirst: a pod that is there for the update alone has the ports only when they were given to it,
// whichever of the two pods starts first, as after a reboot.
func TestSharedHostPortFirst(t *testing.T) {
	s := newSharing(t)
	s.start("surge", "web-1", "b")
	s.answers("surge") // nobody else has it
	s.start("old", "web-0", "a")
	s.answers("old")
	s.end("old", "surge")
}

// TestSharedHostPortReplaced: a pod whose former revision had ended by itself, and so has not yielded, does not take the
// ports from the pod that replaces it; one that has another sandbox for the same revision does.
func TestSharedHostPortReplaced(t *testing.T) {
	s := newSharing(t)
	s.start("old", "web-0", "a")
	s.start("surge", "web-1", "b")
	s.start("old2", "web-0", "a")
	s.answers("old2")
	s.start("new", "web-0", "b")
	s.answers("surge")
	s.start("new2", "web-0", "b")
	s.answers("surge")
	s.end("surge")
	s.answers("new2")
	s.end("old", "old2", "new", "new2")
}

// TestSharedHostPortFlows: UDP flows that go on reach the pod that has the ports, also when the other one has ended
// without yielding.
func TestSharedHostPortFlows(t *testing.T) {
	s := newSharing(t)
	s.start("old", "web-0", "a")
	s.start("surge", "web-1", "b")
	ask := flowTo(t, s.outside, "192.0.2.2:5353")
	ask("old")
	s.end("old")
	ask("surge")
	nettest.In(t, s.host, func() error { return s.br.Yield(context.Background(), "surge") })
	s.start("new", "web-0", "b")
	s.end("surge")
	ask("new")
	s.end("new")
}
