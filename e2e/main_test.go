package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"podrun.io/podrun/internal/test/testcontainerd"
	"podrun.io/podrun/internal/test/testimage"
)

const (
	// box is a busybox; tuned is one whose configuration says how to run it.
	box   = "podrun.example/box:1"
	tuned = "podrun.example/tuned:1"
)

// setup is what all cases share.
var setup struct {
	podrun  string // the binary
	image   string // archive of box
	tuned   string // archive of tuned
	address string // what --containerd-address is; "embedded" for podrun's own
	server  *testcontainerd.Server
	bin     string // directory of the server's binaries

	mu    sync.Mutex
	nodes map[*node]bool // those that are not cleaned up yet
}

// wanted reports whether the cases are to run; else each skips itself.
func wanted() bool { return os.Getenv("PODRUN_E2E") == "1" && os.Getuid() == 0 }

// TestMain prepares the binary's surroundings once.
func TestMain(m *testing.M) {
	if !wanted() {
		os.Exit(m.Run())
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "pm")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // pods' own users find their way through it, as through /run
		return 0, err
	}
	setup.podrun = os.Getenv("PODRUN_E2E_BINARY")
	if setup.podrun == "" {
		setup.podrun = "../bin/podrun"
	}
	if setup.podrun, err = filepath.Abs(setup.podrun); err != nil {
		return 0, err
	}
	if _, err := os.Stat(setup.podrun); err != nil {
		return 0, fmt.Errorf("%w (make build)", err)
	}
	if setup.image, err = testimage.Busybox(dir, box); err != nil {
		return 0, err
	}
	if setup.tuned, err = testimage.Busybox(dir, tuned, testimage.DockerArchive(),
		testimage.Entrypoint("/bin/sh", "-c"), testimage.Cmd("echo default cmd"), testimage.Env("FROM=image", "BOTH=image"),
		testimage.User("65534:65534"), testimage.WorkingDir("/srv/app"), testimage.StopSignal("SIGUSR1")); err != nil {
		return 0, err
	}
	switch kind := os.Getenv("PODRUN_E2E_CONTAINERD"); kind {
	case "", "embedded":
		setup.address = "embedded"
	case testcontainerd.Stock, testcontainerd.Debian:
		if setup.bin, err = testcontainerd.Bin(context.Background(), kind); err != nil {
			return 0, err
		}
		if setup.server, err = testcontainerd.Start(context.Background(), setup.bin, dir); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, setup.server.Stop()) }()
		setup.address = setup.server.Address
	default:
		return 0, fmt.Errorf("PODRUN_E2E_CONTAINERD=%s: must be embedded, stock or debian", kind)
	}
	setup.nodes = map[*node]bool{}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	finished := make(chan int, 1)
	go func() { finished <- m.Run() }()
	select {
	case code := <-finished:
		return code, nil
	case s := <-interrupted:
		return 1, errors.Join(fmt.Errorf("ended by %v", s), abandon())
	}
}

// abandon ends all that the cases have started, wherever they are.
func abandon() error {
	setup.mu.Lock() // for good: no case may start another node
	var err error
	for n := range setup.nodes {
		n.force()
		err = errors.Join(err, os.RemoveAll(n.dir))
	}
	return err
}
