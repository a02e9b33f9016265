package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/nettest"
)

// standIn is a network of one CNI plugin that is a shell script. It appends what it is called for to the file calls
// and executes the file COMMAND-ID of its directory, if there is one, as part of itself.
type standIn struct {
	*Network
	dir  string // of the plugin
	conf string // of the configuration
	dirs layout.Dirs
	logs *strings.Builder
}

const standInScript = `#!/bin/sh
cat >/dev/null
cd "${0%/*}" || exit 1
echo "$CNI_COMMAND $CNI_CONTAINERID${CNI_NETNS:+ in a namespace}" >>calls
if [ -e "$CNI_COMMAND-$CNI_CONTAINERID" ]; then . "./$CNI_COMMAND-$CNI_CONTAINERID"; fi
if [ "$CNI_COMMAND" = ADD ]; then echo '{"cniVersion":"1.0.0","ips":[{"address":"10.98.7.7/24"}]}'; fi
`

const refuse = `echo '{"code":11,"msg":"refused by the stand-in"}'; exit 1`

// newStandIn returns the network, with its plugin installed and configured.
func newStandIn(t *testing.T) *standIn {
	t.Helper()
	s := &standIn{
		dir: t.TempDir(), conf: t.TempDir(), dirs: layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}, logs: &strings.Builder{},
	}
	s.install(t)
	text := `{"cniVersion":"1.0.0","name":"mine","plugins":[{"type":"standin"}]}`
	if err := os.WriteFile(filepath.Join(s.conf, "10-mine.conflist"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.restart()
	return s
}

// restart replaces the Network, as a new process of podrun would.
func (s *standIn) restart() { s.Network = New(s.options()) }

func (s *standIn) options() Options {
	return Options{
		Dirs: s.dirs, Log: slog.New(slog.NewTextHandler(s.logs, nil)), ConfDir: s.conf, BinDirs: []string{s.dir},
	}
}

func (s *standIn) install(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "standin"), []byte(standInScript), 0o700); err != nil {
		t.Fatal(err)
	}
}

func (s *standIn) uninstall(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(s.dir, "standin")); err != nil {
		t.Fatal(err)
	}
}

// on makes the plugin execute a script when it is called with that command for id; "" ends that.
func (s *standIn) on(t *testing.T, command, id, script string) {
	t.Helper()
	file := filepath.Join(s.dir, command+"-"+id)
	err := os.WriteFile(file, []byte(script), 0o600)
	if script == "" {
		err = os.Remove(file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *standIn) calls(t *testing.T, command, id string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), fmt.Sprintf("%s %s", command, id))
}

// connect sets up a sandbox of each id, in a network namespace of its own.
func (s *standIn) connect(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if addrs, err := s.Setup(t.Context(), id, nettest.Path(nettest.NewNS(t)), nettest.NoPorts); err != nil || len(addrs) != 1 {
			t.Fatalf("%s: %v, %v", id, addrs, err)
		}
	}
}

// held checks which ids are held.
func (s *standIn) held(t *testing.T, want ...string) {
	t.Helper()
	got, err := s.Holders()
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("held: %v, %v, want %v", got, err, want)
	}
}

func (s *standIn) setup(ctx context.Context, id string, ns netns.NsHandle) ([]netip.Addr, error) {
	return s.Setup(ctx, id, nettest.Path(ns), nettest.NoPorts)
}
