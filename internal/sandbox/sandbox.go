// Package sandbox creates, checks and removes what the containers of a pod share: the pod's
// namespaces and its network addresses. Namespaces are pinned by bind mounts, so that no process
// has to run to keep them, except for a shared process namespace.
//
// The package keeps no record of a sandbox. Its properties are in the pod's checkpoint, and the
// caller saves them there before Create makes anything. The package knows no container runtime, and
// does not know how a pod's network is connected; that is the task of Network.
//
// On disk, below one directory that is a private bind mount of itself while there is any sandbox:
//
//	<id>/net ipc uts    the pins; also user, for a pod with a user namespace
//	<id>/first-user     for such a pod: a symbolic link whose target is the first of its host user IDs
//	<id>/shm            the pod's shared memory, if it has several containers
//	<id>/pause.cgroup   for a shared process namespace: a symbolic link whose target is its first process's cgroup
//	<id>/pause pid      the root directory of that process, and the pin
//
// The files only record what must be removed. So at whatever moment a process dies, Remove removes
// what it left, and Sweep removes sandboxes that no checkpoint names.
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

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/trace"
)

// Network connects a pod's network namespace. A Store does not call it concurrently for the same
// id.
type Network interface {
	// Setup connects pod p to its network through the network namespace at the path netns, and
	// returns its addresses, IPv4 first. An empty netns means host networking: then Setup only
	// reserves what such a pod declares to use, its host ports.
	Setup(ctx context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error)
	// Yield gives the host ports of id to another pod that shares them, if there is one.
	Yield(ctx context.Context, id string) error
	// Teardown releases everything that Setup acquired for id, even if Setup was interrupted. It
	// succeeds if there is nothing to release.
	Teardown(ctx context.Context, id string) error
}

// Options are the parameters of New.
type Options struct {
	Dirs layout.Dirs
	// Network connects the pods. It may be nil if the Store creates no sandboxes and the network
	// releases its resources by itself.
	Network Network
	// ClusterDomain is the suffix of pods' fully qualified names.
	ClusterDomain string
	// CgroupDriver is the cgroup driver of new sandboxes.
	CgroupDriver oci.Driver
	Log          *slog.Logger
}

// Store creates and removes the sandboxes of one run directory, concurrently with other processes
// that use the same directory. Its methods are safe for concurrent use.
type Store struct {
	dir     directory
	network Network
	cluster string
	driver  oci.Driver
	log     *slog.Logger
	machine func() (machine, error)
}

// New returns a Store. It creates nothing yet.
func New(o Options) *Store {
	return &Store{
		dir:     directory{root: o.Dirs.SandboxFiles().Dir(), step: func(string) {}},
		network: o.Network,
		cluster: o.ClusterDomain,
		driver:  o.CgroupDriver,
		log:     o.Log,
		machine: sync.OnceValues(thisMachine),
	}
}

// Prepare returns the properties of a new sandbox for the pod and creates nothing. It fails for a
// pod that cannot have a sandbox.
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

// Create creates the sandbox b of the pod: it pins the namespaces and connects the network. b must
// have an ID that was never used before and the details that Prepare returned, and must be saved in
// the checkpoint. Create returns b completed. If it fails, the caller must call Remove to release
// what was created.
func (s *Store) Create(ctx context.Context, p *v1.Pod, b pod.Sandbox) (pod.Sandbox, error) {
	if err := s.create(ctx, p, &b); err != nil {
		return pod.Sandbox{}, fmt.Errorf("creating the sandbox of %s: %w", pod.KeyOf(p), err)
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
	lock, err := s.dir.reserve(ctx, b.ID)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	left, err := names(s.dir.path(b.ID))
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

// build creates the pins and the network in the sandbox's empty directory.
func (s *Store) build(ctx context.Context, p *v1.Pod, b *pod.Sandbox) error {
	hostname, err := pod.KernelName(p, s.cluster)
	if err != nil {
		return err
	}
	if hasUsers(p) {
		if b.Details.FirstUser, err = s.dir.allocateUsers(b.ID); err != nil {
			return err
		}
		s.dir.step("first user")
		err = pinWithUsers(s.dir.path(b.ID), pins(b.Details), hostname, b.Details.FirstUser, s.dir.step)
	} else {
		err = pin(s.dir.path(b.ID), pins(b.Details), hostname, s.dir.step)
	}
	if err != nil {
		return err
	}
	if err := s.connect(ctx, p, b); err != nil {
		return err
	}
	s.dir.step("network")
	if err := s.setSysctls(b.ID, p, b.Details.FirstUser); err != nil {
		return err
	}
	if b.Details.Shm {
		if err := mountShm(s.dir.file(b.ID, shmName), b.Details.FirstUser); err != nil {
			return err
		}
		s.dir.step("shared memory")
	}
	if b.Details.PauseParent != "" {
		return s.startPause(b)
	}
	return nil
}

// connect connects the pod's network; for a pod with host networking it only reserves the host
// ports.
func (s *Store) connect(ctx context.Context, p *v1.Pod, b *pod.Sandbox) error {
	netns := ""
	if !b.Details.HostNetwork {
		netns = s.dir.file(b.ID, pinNet)
	} else if s.network == nil {
		return nil
	}
	traced := trace.Of(ctx)
	if netns != "" {
		traced.Network()
	}
	ips, err := s.network.Setup(ctx, b.ID, netns, p)
	if netns != "" {
		traced.Connected(err)
	}
	if err != nil {
		return err
	}
	b.IPs = nil
	for _, ip := range ips {
		b.IPs = append(b.IPs, ip.String())
	}
	return nil
}

// Remove releases everything that the sandbox holds, whether it is complete, half created or
// already removed, and whether it is of this boot or an earlier one. It tries every step even if
// one fails, and waits only for a Create or Remove of the same sandbox.
func (s *Store) Remove(ctx context.Context, b pod.Sandbox) error {
	if err := s.remove(ctx, b); err != nil {
		return fmt.Errorf("removing sandbox %s: %w", b.ID, err)
	}
	return nil
}

// YieldPorts gives the host ports of a sandbox to that of another pod that shares them, if there is one.
func (s *Store) YieldPorts(ctx context.Context, id string) error {
	if s.network == nil {
		return nil
	}
	return s.network.Yield(ctx, id)
}

func (s *Store) remove(ctx context.Context, b pod.Sandbox) error {
	if err := checkID(b.ID); err != nil {
		return err
	}
	lock, err := s.dir.reserve(ctx, b.ID)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return s.clear(ctx, b)
}

// clear releases what the sandbox holds, and removes its directory last. Steps that may take long
// come after those that depend on nothing else. The caller holds the sandbox's lock.
func (s *Store) clear(ctx context.Context, b pod.Sandbox) error {
	var errs []error
	done := func(what string, err error) {
		if errs = append(errs, err); err == nil {
			s.dir.step(what + " removed")
		}
	}
	done("pause process", s.endPause(b))
	done("shared memory", unmountShm(s.dir.file(b.ID, shmName)))
	for _, name := range []string{pinIPC, pinUTS, pinUser} {
		done(name, unpin(s.dir.file(b.ID, name)))
	}
	var unreleased error
	if s.network != nil {
		if unreleased = s.network.Teardown(ctx, b.ID); unreleased == nil {
			s.dir.step("network removed")
		}
	}
	// After the network, which may need the namespace to release its resources there.
	done(pinNet, unpin(s.dir.file(b.ID, pinNet)))
	done("former record", s.dir.removeRecord(b.ID))
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, unreleased)
	}
	return errors.Join(unreleased, s.dir.forget(b.ID))
}

// path returns the sandbox's directory.
func (d *directory) path(id string) string { return d.root + "/" + id }

// file returns the path of a file of the sandbox. It does not clean the path, because that is clean
// already and Ready is called often.
func (d *directory) file(id, name string) string { return d.root + "/" + id + "/" + name }

// checkID makes sure that an invalid ID never becomes a path.
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

// removeFile removes a file; it succeeds if the file does not exist.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// readLink returns a symbolic link's target, "" if the link does not exist. Files whose content
// must be complete as soon as they exist are symbolic links, because one system call creates them.
func readLink(path string) (string, error) {
	target, err := os.Readlink(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return target, err
}
