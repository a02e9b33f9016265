package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/portmap"
	"podrun.io/podrun/internal/test"
)

// TestHostPortOfAnotherPodrun: a host port that a podrun of another run directory forwards is in use, until its pod
// ends.
func TestHostPortOfAnotherPodrun(t *testing.T) {
	host, outside, web, later := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br, theirs := newBridge(t, t.TempDir()), newBridge(t, t.TempDir())
	mustSetupPod(t, host, theirs, "web", web, nettest.PodWith(t, "web",
		"8080:80/TCP", "5353:53/UDP", "192.0.2.2:81:80/TCP", "[2001:db8::2]:82:80/TCP"))
	nettest.ServeTCP(t, web, ":80", "theirs")
	nettest.ServeTCP(t, later, ":80", "mine")
	rec, _ := theirs.records.Load()
	for port, table := range map[string]string{
		"8080:80/TCP":             "ip",
		"0.0.0.0:8080:80/TCP":     "ip",
		"127.0.0.1:8080:80/TCP":   "ip",
		"5353:53/UDP":             "ip",
		"81:80/TCP":               "ip",
		"192.0.2.2:81:80/TCP":     "ip",
		"[2001:db8::2]:82:80/TCP": "ip6",
		"[::]:82:80/TCP":          "ip6",
		"8080:80/UDP":             "",
		"127.0.0.1:81:80/TCP":     "",
		"8081:80/TCP":             "",
	} {
		for network, ns := range map[string]netns.NsHandle{"a pod's": nettest.NewNS(t), "the machine's": netns.None()} {
			_, err := nettest.SetupPod(host, br, "x", ns, nettest.PodWith(t, "web", port))
			var inUse *portmap.PortInUseError
			switch {
			case table == "" && err != nil:
				t.Errorf("%s, %s network: %v", port, network, err)
			case table != "" && (!errors.As(err, &inUse) || inUse.Table != table+" "+portmap.Table(rec.Bridge)):
				t.Errorf("%s, %s network: error %v", port, network, err)
			}
			nettest.Teardown(t, host, br, "x")
		}
	}
	if got, err := nettest.Ask(outside, "tcp", "192.0.2.2:8080"); !strings.HasPrefix(got, "theirs ") {
		t.Errorf("meanwhile: %q, %v", got, err)
	}
	nettest.Teardown(t, host, theirs, "web")
	mustSetupPod(t, host, br, "x", later, nettest.PodWith(t, "web", "8080:80/TCP", "82:80/TCP"))
	if got, err := nettest.Ask(outside, "tcp", "192.0.2.2:8080"); !strings.HasPrefix(got, "mine ") {
		t.Errorf("when they have ended: %q, %v", got, err)
	}
}

// TestHostPortOfEndedPodrun: the rules of a podrun that was deleted with its pods keep no other one from a host port,
// nor divert it from a pod of another one that had rules before.
func TestHostPortOfEndedPodrun(t *testing.T) {
	for name, ended := range map[string]string{
		"the pods":     "ip link delete PORT",
		"the bridge":   "ip link delete PORT; ip link delete BRIDGE",
		"and is older": "ip link delete PORT",
	} {
		t.Run(name, func(t *testing.T) {
			host, outside, web := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
			nettest.JoinOutside(t, host, outside)
			br, theirs := newBridge(t, t.TempDir()), newBridge(t, t.TempDir())
			if name != "and is older" {
				mustSetupPod(t, host, br, "first", nettest.NewNS(t), nettest.PodWith(t, "first", "8081:80/TCP"))
			}
			mustSetupPod(t, host, theirs, "web", nettest.NewNS(t), nettest.PodWith(t, "web", "8080:80/TCP"))
			rec, _ := theirs.records.Load()
			command(t, host, strings.NewReplacer("PORT", theirs.identity.portName("web"), "BRIDGE", rec.Bridge).Replace(ended))
			mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "8080:80/TCP"))
			nettest.ServeTCP(t, web, ":80", "mine")
			if got, err := nettest.Ask(outside, "tcp", "192.0.2.2:8080"); !strings.HasPrefix(got, "mine ") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestHostPortOfEndedPodrunWithoutBridge: a pod in the machine's network has the port too, and a warning says what diverts
// it.
func TestHostPortOfEndedPodrunWithoutBridge(t *testing.T) {
	host, outside, log := nettest.NewNS(t), nettest.NewNS(t), &test.Buffer{}
	nettest.JoinOutside(t, host, outside)
	theirs := newBridge(t, t.TempDir())
	br := New(Options{Dirs: layout.Dirs{Run: t.TempDir()}, Log: slog.New(slog.NewTextHandler(log, nil))})
	mustSetupPod(t, host, theirs, "web", nettest.NewNS(t), nettest.PodWith(t, "web", "8080:80/TCP"))
	rec, _ := theirs.records.Load()
	command(t, host, "ip link delete "+theirs.identity.portName("web"))
	mustSetupPod(t, host, br, "web", netns.None(), nettest.PodWith(t, "web", "8080:8080/TCP"))
	remedy := "nft delete table ip " + portmap.Table(rec.Bridge)
	if n := strings.Count(log.String(), remedy); n != 1 {
		t.Fatalf("%d warnings: %s", n, log)
	}
	command(t, host, remedy)
	nettest.ServeTCP(t, host, ":8080", "machine")
	if got, err := nettest.Ask(outside, "tcp", "192.0.2.2:8080"); !strings.HasPrefix(got, "machine ") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestHostPortOfFormerRunDirectory: a pod in the machine's network gets a host port that podrun itself forwarded before
// its run directory was deleted.
func TestHostPortOfFormerRunDirectory(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	dirs := layout.Dirs{Run: filepath.Join(t.TempDir(), "run"), Root: t.TempDir()}
	start := func() *Bridge {
		if err := os.Mkdir(dirs.Run, 0o700); err != nil {
			t.Fatal(err)
		}
		return New(Options{Dirs: dirs, Log: slog.New(slog.DiscardHandler)})
	}
	mustSetupPod(t, host, start(), "web", nettest.NewNS(t), nettest.PodWith(t, "web", "8080:80/TCP"))
	if err := os.RemoveAll(dirs.Run); err != nil {
		t.Fatal(err)
	}
	br := start()
	nettest.In(t, host, br.Repair)
	mustSetupPod(t, host, br, "web", netns.None(), nettest.PodWith(t, "web", "8080:8080/TCP"))
	nettest.ServeTCP(t, host, ":8080", "machine")
	if got, err := nettest.Ask(outside, "tcp", "192.0.2.2:8080"); !strings.HasPrefix(got, "machine ") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestHostPortOfPodrunsAtOnce: of podruns that start pods with the same host port at the same time one has it at most,
// and what one that failed has left keeps no other from having it.
func TestHostPortOfPodrunsAtOnce(t *testing.T) {
	t.Run("with other pods", func(t *testing.T) { testHostPortOfPodrunsAtOnce(t, true) })
	t.Run("their first pods", func(t *testing.T) { testHostPortOfPodrunsAtOnce(t, false) })
}

// errInUse is a *portmap.PortInUseError of another process.
var errInUse = errors.New("the port is in use")

const (
	anotherRun  = "PODRUN_TEST_RUN_DIR"
	anotherHost = "PODRUN_TEST_HOST"
	anotherPod  = "PODRUN_TEST_POD"
	codeInUse   = 9
)

// setupElsewhere connects the pod x with host port 8080 in a process of its own, as each podrun is one.
func setupElsewhere(b *Bridge, host, ns netns.NsHandle) error {
	cmd := exec.Command(os.Args[0], "-test.run=^TestAsAnotherPodrun$")
	cmd.Env = append(os.Environ(), anotherRun+"="+b.identity.run, anotherHost+"="+nettest.Path(host), anotherPod+"="+nettest.Path(ns))
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() == codeInUse {
		return errInUse
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestAsAnotherPodrun is what setupElsewhere runs.
func TestAsAnotherPodrun(t *testing.T) {
	run := os.Getenv(anotherRun)
	if run == "" {
		return // it is no test by itself
	}
	host, err := netns.GetFromPath(os.Getenv(anotherHost))
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.GetFromPath(os.Getenv(anotherPod))
	if err != nil {
		t.Fatal(err)
	}
	_, err = nettest.SetupPod(host, newBridge(t, run), "x", ns, nettest.PodWith(t, "web", "8080:80/TCP"))
	var inUse *portmap.PortInUseError
	if errors.As(err, &inUse) {
		os.Exit(codeInUse)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func testHostPortOfPodrunsAtOnce(t *testing.T, others bool) {
	host := nettest.NewNS(t)
	p := nettest.PodWith(t, "web", "8080:80/TCP")
	bridges := make([]*Bridge, 4)
	for i := range bridges {
		bridges[i] = newBridge(t, t.TempDir())
		if others {
			nettest.MustSetup(t, host, bridges[i], "stays", nettest.NewNS(t))
		}
	}
	for range 10 {
		var all sync.WaitGroup
		errs := make([]error, len(bridges))
		for i, b := range bridges {
			ns := nettest.NewNS(t)
			all.Go(func() { errs[i] = setupElsewhere(b, host, ns) })
		}
		all.Wait()
		having := 0
		for i, err := range errs {
			if err == nil {
				having++
				nettest.Teardown(t, host, bridges[i], "x")
			} else if !errors.Is(err, errInUse) {
				t.Fatal(err)
			}
		}
		if having > 1 {
			t.Fatalf("%d podruns forward the port", having)
		}
		mustSetupPod(t, host, bridges[0], "y", nettest.NewNS(t), p) // although the others were not torn down
		for _, b := range bridges {
			nettest.Teardown(t, host, b, "y")
			nettest.Teardown(t, host, b, "x")
		}
	}
}
