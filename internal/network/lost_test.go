package network

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/sys"
)

func nobody(string) bool { return false }

// TestSweepLost: each lost sandbox is released independently, and known ones are not touched.
func TestSweepLost(t *testing.T) {
	s := newStandIn(t)
	s.connect(t, "bad", "good", "hung", "known", "torn")
	if _, err := s.Setup(t.Context(), "host", "", nettest.PodWith(t, "host", "8080:80/TCP")); err != nil {
		t.Fatal(err)
	}
	s.plugins.DelLimit = 3 * time.Second
	s.on(t, "DEL", "bad", refuse)
	s.on(t, "DEL", "hung", hang)
	if err := os.WriteFile(s.plugins.RecordPath("torn"), []byte(`{"confl`), 0o600); err != nil {
		t.Fatal(err)
	}
	known := func(id string) bool { return id == "known" }
	err := within(t, "sweep", func() error { return s.SweepLost(context.Background(), known) })
	wanted := []string{"lost sandbox bad: ", "refused by the stand-in", "lost sandbox hung: ", "not done within 3s"}
	for _, want := range wanted {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
	s.ended(t)
	s.held(t, "bad", "hung", "known")
}

// TestSweepLostLater: a failed release is tried again after a delay, no sooner, and logged once.
func TestSweepLostLater(t *testing.T) {
	s := newStandIn(t)
	s.connect(t, "a")
	s.on(t, "DEL", "a", refuse)
	synctest.Test(t, func(t *testing.T) {
		sweep := func(fails bool, calls int) {
			t.Helper()
			if err := s.SweepLost(t.Context(), nobody); (err != nil) != fails {
				t.Errorf("error %v", err)
			}
			if n := s.calls(t, "DEL", "a"); n != calls {
				t.Errorf("called %d times, want %d", n, calls)
			}
		}
		sweep(true, 1)
		sweep(false, 1)
		time.Sleep(firstRetry)
		sweep(true, 2)
		time.Sleep(firstRetry)
		sweep(false, 2)
		time.Sleep(firstRetry)
		sweep(true, 3)
		for calls := 4; calls < 14; calls++ {
			time.Sleep(lastRetry)
			sweep(true, calls)
		}
		s.on(t, "DEL", "a", "")
		time.Sleep(lastRetry)
		sweep(false, 14)
	})
	s.held(t)
	if n := strings.Count(s.logs.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, s.logs)
	}
}

// TestSweepLostBusy: a lost sandbox that another process works on is left to that process.
func TestSweepLostBusy(t *testing.T) {
	s := newStandIn(t)
	s.connect(t, "a")
	lock, err := sys.TryLockDir(filepath.Join(s.dirs.Networks().CNI(), "a.lock"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if err := within(t, "sweep", func() error { return s.SweepLost(context.Background(), nobody) }); err != nil {
		t.Error(err)
	}
	if n := s.calls(t, "DEL", "a"); n != 0 {
		t.Errorf("called %d times", n)
	}
	lock.Unlock() // as of a process that died: the directory stays
	if err := os.Remove(s.plugins.RecordPath("a")); err != nil {
		t.Fatal(err)
	}
	s.held(t, "a")
	if err := s.SweepLost(t.Context(), nobody); err != nil {
		t.Error(err)
	}
	s.held(t)
}

// TestSweepLostComesBack: an ID that becomes known before its release begins is not released.
func TestSweepLostComesBack(t *testing.T) {
	s := newStandIn(t)
	s.connect(t, "a")
	if _, err := s.Setup(t.Context(), "host", "", nettest.PodWith(t, "host", "8080:80/TCP")); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[string]bool{}
	err := s.SweepLost(t.Context(), func(id string) bool { // at the first question of each it is not known
		mu.Lock()
		defer mu.Unlock()
		before := asked[id]
		asked[id] = true
		return before
	})
	if err != nil {
		t.Error(err)
	}
	s.held(t, "a", "host")
}

// reboot is what a new boot makes of the records.
func (s *standIn) reboot(t *testing.T) {
	t.Helper()
	s.Network = newOfBoot(s.options(), func() (string, error) { return "another", nil })
	if err := os.RemoveAll(s.dirs.Run); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.dirs.Run, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestRebootWithoutPlugins: a sandbox of an earlier boot is removed, and new ones start, although
// its plugins are missing or fail. The plugins are called when they work again.
func TestRebootWithoutPlugins(t *testing.T) {
	for name, c := range map[string]struct{ harm, repair func(*testing.T, *standIn) }{
		"missing": {func(t *testing.T, s *standIn) { s.uninstall(t) }, func(t *testing.T, s *standIn) { s.install(t) }},
		"failing": {
			func(t *testing.T, s *standIn) { s.on(t, "DEL", "a", refuse) },
			func(t *testing.T, s *standIn) { s.on(t, "DEL", "a", "") },
		},
		"hanging": {
			func(t *testing.T, s *standIn) {
				s.on(t, "DEL", "a", "sleep 1000")
				s.plugins.DelLimit = 3 * time.Second
			},
			func(t *testing.T, s *standIn) { s.on(t, "DEL", "a", "") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.connect(t, "a")
			s.reboot(t)
			c.harm(t, s)
			if err := within(t, "teardown", func() error { return s.Teardown(context.Background(), "a") }); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(s.logs.String(), "sandbox=a") || strings.Count(s.logs.String(), "level=WARN") != 1 {
				t.Errorf("log:\n%s", s.logs)
			}
			s.held(t, "a")
			s.another(t, name == "missing")
			c.repair(t, s)
			s.retries.succeeded("a") // the pause after a failure is over
			if err := s.SweepLost(t.Context(), nobody); err != nil {
				t.Error(err)
			}
			s.held(t)
			if text := s.text(t); !strings.HasSuffix(text, "DEL a\n") {
				t.Errorf("called with the namespace of another boot:\n%s", text)
			}
		})
	}
}

// another connects and releases another sandbox, by podrun's own bridge if the plugins are gone with their
// configuration.
func (s *standIn) another(t *testing.T, gone bool) {
	t.Helper()
	if !gone {
		s.connect(t, "b")
		if err := s.Teardown(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		return
	}
	s.plugins.ConfDir = t.TempDir()
	outside := nettest.NewNS(t)
	nettest.In(t, outside, func() error {
		_, err := s.setup(t.Context(), "b", nettest.NewNS(t))
		return errors.Join(err, s.Teardown(t.Context(), "b"))
	})
	nettest.Bare(t, outside, s.dirs.Run)
}

func (s *standIn) text(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(s.dir + "/calls")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPluginsMissing: in the same boot, a sandbox waits for missing plugins for a few attempts and
// is then removed without them. Plugins that were moved are found.
func TestPluginsMissing(t *testing.T) {
	s := newStandIn(t)
	s.connect(t, "a", "b", "c")
	s.uninstall(t)
	for try := 1; try <= releaseTries; try++ {
		if err := s.Teardown(t.Context(), "a"); (err == nil) != (try == releaseTries) {
			t.Errorf("try %d: %v", try, err)
		}
	}
	s.held(t, "a", "b", "c")
	s.dir = t.TempDir()
	s.install(t)
	s.restart()
	if err := s.Teardown(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	if err := s.SweepLost(t.Context(), func(id string) bool { return id == "c" }); err != nil {
		t.Error(err)
	}
	s.held(t, "c")
}

// TestFormerRecord: a record of a former version has no boot ID; whether its namespace exists
// decides instead.
func TestFormerRecord(t *testing.T) {
	s := newStandIn(t)
	s.connect(t, "a")
	s.on(t, "DEL", "a", refuse)
	boot, err := sys.BootID()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, replacement string) {
		t.Helper()
		text, err := os.ReadFile(s.plugins.RecordPath("a"))
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s is not in %s: %v", old, text, err)
		}
		text = []byte(strings.Replace(string(text), old, replacement, 1))
		if err := os.WriteFile(s.plugins.RecordPath("a"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit(`"boot":"`+boot+`",`, "")
	if err := s.Teardown(t.Context(), "a"); err == nil {
		t.Error("released in the same boot")
	}
	edit(`"netns":"/proc/`, `"netns":"/nowhere/`)
	if err := s.Teardown(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	s.held(t, "a")
}
