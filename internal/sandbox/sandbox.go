// Package sandbox makes, checks and removes what a pod's containers share: namespaces pinned by bind mounts, so
// that no process has to live for them but for that of a shared process namespace, and the pod's addresses.
// It keeps no record of a sandbox: what a sandbox is, is in the pod's checkpoint, and whoever calls saves it there
// before Create makes anything. It knows no container runtime and does not own how a pod is connected; that is
// Network's.
//
// On disk, below one directory that is its own private bind mount while it has any sandbox:
//
//	<id>/net ipc uts    the pins; user too, for a pod with users of its own
//	<id>/first-user     of such a pod: a symbolic link whose target is the first of its users
//	<id>/shm            the pod's shared memory, where it has several containers
//	<id>/pause.cgroup   of a shared process namespace: a symbolic link whose target is its first process' cgroup
//	<id>/pause pid      that process' root directory, and the pin
//
// The files say what is there to be removed, and nothing else. So whatever the moment at which a process dies, Remove
// removes what it left, and Sweep what no checkpoint names.
//
// Begin reading at Store.
package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
)

// Network connects a pod's network namespace. A Store calls it for one id at a time only.
type Network interface {
	// Setup connects p by the namespace at the path netns and returns its addresses, IPv4 first. Without
	// netns it takes for p what a pod in the host's network needs of it.
	Setup(ctx context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error)
	// Teardown releases whatever Setup took for id, complete or not; nothing to release is success.
	Teardown(ctx context.Context, id string) error
}

// Options are what a Store needs.
type Options struct {
	Dirs layout.Dirs
	// Network connects the pods; nil where no sandbox is made, and the network releases what it has by itself.
	Network Network
	// ClusterDomain ends pods' full names.
	ClusterDomain string
	// CgroupDriver is that of new sandboxes.
	CgroupDriver oci.Driver
	Log          *slog.Logger
}

// Store makes and removes the sandboxes of one run directory, beside all other processes of that directory. Its
// methods may be called at the same time.
type Store struct {
	dir     string
	network Network
	cluster string
	driver  oci.Driver
	log     *slog.Logger
	machine func() (machine, error)
	// step is called with each step of Create and Remove after it, for the tests that cut them short.
	step func(string)
}

// New returns the store; it touches nothing yet.
func New(o Options) *Store {
	return &Store{
		dir:     o.Dirs.Sandboxes(),
		network: o.Network,
		cluster: o.ClusterDomain,
		driver:  o.CgroupDriver,
		log:     o.Log,
		machine: sync.OnceValues(thisMachine),
		step:    func(string) {},
	}
}

// Prepare returns how a sandbox of the pod is to be made, and makes nothing. It fails for a pod that cannot have one.
func (s *Store) Prepare(p *v1.Pod) (pod.SandboxDetails, error) {
	d := pod.SandboxDetails{
		HostNetwork: p.Spec.HostNetwork,
		HostIPC:     p.Spec.HostIPC,
		Shm:         sharesMemory(p),
		Systemd:     s.driver == oci.Systemd,
	}
	if _, err := pod.KernelName(p, s.cluster); err != nil {
		return pod.SandboxDetails{}, err
	}
	if share := p.Spec.ShareProcessNamespace; share != nil && *share {
		if _, err := pauseProgram(runtime.GOARCH); err != nil {
			return pod.SandboxDetails{}, err
		}
		d.PauseParent = s.driver.OfPod(p)
	}
	return d, nil
}

// Create makes the sandbox b of the pod: it pins the namespaces and connects the network. b's ID was never used before,
// b is saved, and its details are Prepare's. It returns b completed. When it fails, it leaves what it made for Remove.
func (s *Store) Create(ctx context.Context, p *v1.Pod, b pod.Sandbox) (pod.Sandbox, error) {
	if err := s.create(ctx, p, &b); err != nil {
		return pod.Sandbox{}, fmt.Errorf("creating sandbox %s of %s: %w", b.ID, pod.KeyOf(p), err)
	}
	return b, nil
}

func (s *Store) create(ctx context.Context, p *v1.Pod, b *pod.Sandbox) error {
	if err := errors.Join(ctx.Err(), checkID(b.ID)); err != nil {
		return err
	}
	now, err := s.machine()
	if err != nil {
		return err
	}
	lock, err := s.reserve(ctx, b.ID)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	left, err := names(s.path(b.ID))
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("the ID has been used: its directory has %q", left)
	}
	if err := s.build(ctx, p, b); err != nil {
		return err
	}
	b.Boot, b.Ready, b.Details.Complete = now.boot, true, true
	return nil
}

// build makes the pins and the network in the sandbox's empty directory.
func (s *Store) build(ctx context.Context, p *v1.Pod, b *pod.Sandbox) error {
	hostname, err := pod.KernelName(p, s.cluster)
	if err != nil {
		return err
	}
	if hasUsers(p) {
		if b.Details.FirstUser, err = s.allocateUsers(b.ID); err != nil {
			return err
		}
		s.step("first user")
		err = pinWithUsers(s.path(b.ID), pins(b.Details), hostname, b.Details.FirstUser, s.step)
	} else {
		err = pin(s.path(b.ID), pins(b.Details), hostname, s.step)
	}
	if err != nil {
		return err
	}
	if err := s.connect(ctx, p, b); err != nil {
		return err
	}
	s.step("network")
	if err := s.setSysctls(b.ID, p, b.Details.FirstUser); err != nil {
		return err
	}
	if b.Details.Shm {
		if err := mountShm(s.file(b.ID, shmName), b.Details.FirstUser); err != nil {
			return err
		}
		s.step("shared memory")
	}
	if b.Details.PauseParent != "" {
		return s.startPause(b)
	}
	return nil
}

// connect gives the pod its network, for a pod in the host's only what it declares to use of that.
func (s *Store) connect(ctx context.Context, p *v1.Pod, b *pod.Sandbox) error {
	netns := ""
	if !b.Details.HostNetwork {
		netns = s.file(b.ID, pinNet)
	} else if s.network == nil {
		return nil
	}
	ips, err := s.network.Setup(ctx, b.ID, netns, p)
	if err != nil {
		return err
	}
	b.IPs = nil
	for _, ip := range ips {
		b.IPs = append(b.IPs, ip.String())
	}
	return nil
}

// Remove releases all that the sandbox holds, be it complete, half-made or gone, of this boot or a former one. It
// tries every step though one fails, and waits for nobody but another Create or Remove of the same sandbox.
func (s *Store) Remove(ctx context.Context, b pod.Sandbox) error {
	if err := s.remove(ctx, b); err != nil {
		return fmt.Errorf("removing sandbox %s: %w", b.ID, err)
	}
	return nil
}

func (s *Store) remove(ctx context.Context, b pod.Sandbox) error {
	if err := checkID(b.ID); err != nil {
		return err
	}
	lock, err := s.reserve(ctx, b.ID)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return s.clear(ctx, b)
}

// clear releases what the sandbox holds, and its directory at last. What may take long is done after all that needs
// nobody else. The caller holds the sandbox's lock.
func (s *Store) clear(ctx context.Context, b pod.Sandbox) error {
	var errs []error
	done := func(what string, err error) {
		if errs = append(errs, err); err == nil {
			s.step(what + " removed")
		}
	}
	done("pause process", s.endPause(b))
	done("shared memory", unmountShm(s.file(b.ID, shmName)))
	for _, name := range []string{pinIPC, pinUTS, pinUser} {
		done(name, unpin(s.file(b.ID, name)))
	}
	var unreleased error
	if s.network != nil {
		if unreleased = s.network.Teardown(ctx, b.ID); unreleased == nil {
			s.step("network removed")
		}
	}
	done(pinNet, unpin(s.file(b.ID, pinNet))) // the network may need the namespace to release what it has there
	done("former record", s.removeRecord(b.ID))
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, unreleased)
	}
	return errors.Join(unreleased, s.forget(b.ID))
}

// path is the sandbox's directory.
func (s *Store) path(id string) string { return s.dir + "/" + id }

// file is a file of the sandbox. The directory is clean already, and Ready is called often.
func (s *Store) file(id, name string) string { return s.dir + "/" + id + "/" + name }

// checkID keeps a caller's mistake from becoming a path.
func checkID(id string) error {
	if !isID(id) {
		return fmt.Errorf("%q is not a sandbox's ID", id)
	}
	return nil
}

func isID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == 16
}

// removeFile removes a file of ours; a missing one is success.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// readLink returns a symbolic link's target, "" for one that is missing. Such links hold what has to be there, with its
// whole content, at once: that is one call.
func readLink(path string) (string, error) {
	target, err := os.Readlink(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return target, err
}
