package stats

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys"
)

// inNetwork starts a thread that stays, until the end of the test, in a network namespace of its own with those
// interfaces. It returns the thread's ID.
func inNetwork(t *testing.T, links ...string) (id int) {
	t.Helper()
	ready, end := make(chan error), make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		runtime.LockOSThread() // and never unlock it: the thread ends with the goroutine
		id = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		for _, name := range links {
			if err == nil {
				err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
			}
		}
		ready <- err
		<-end
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return id
}

// TestInventedInterfaces: a container's process shows interfaces that it has made in a network namespace of its own;
// those of the pod are reported, and only so many.
func TestInventedInterfaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	var many []string
	for i := range 70 {
		many = append(many, fmt.Sprintf("own%02d", i))
	}
	w := &world{pids: []int{inNetwork(t, "invented")}}
	o := w.options()
	pod := fmt.Sprintf("/proc/%d/ns/net", inNetwork(t, many...))
	o.Links, o.Network = sys.Links, func(*v1.Pod) string { return pod }
	got, err := New(o).Whole(t.Context(), []v1.Pod{stored()}, time.Now())
	if err != nil || len(got.Pods) != 1 || got.Pods[0].Network == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if all := got.Pods[0].Network.Interfaces; len(all) != 64 || all[0].Name != "own00" {
		t.Errorf("%d interfaces: %s ...", len(all), all[0].Name)
	}
}
