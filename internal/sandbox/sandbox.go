// Package sandbox makes and removes what a pod's containers share: namespaces pinned by bind mounts, so
// that no process has to live for them but for that of a shared process namespace, and the pod's addresses.
// It knows no container runtime and does not own how a pod is connected; that is Network's.
//
// On disk, below one directory that is its own private bind mount while it has any sandbox:
//
//	<id>.intent         a symbolic link whose target is the identity as JSON: made first, removed last
//	<id>/net ipc uts    the pins; user too, for a pod with users of its own
//	<id>/shm            the pod's shared memory, where it has several containers
//	<id>/pause pid      of a shared process namespace: the mark of its first process, made before it, and the pin
//	<id>/sandbox.json   the record: made last, removed first
//
// So whatever the moment at which a process dies, List shows what it left and Remove removes it.
package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
)

// Network connects a pod's network namespace. A Store calls it for one id at a time only.
type Network interface {
	// Setup connects p by the namespace at the path netns and returns its addresses, IPv4 first. Without
	// netns it takes for p what a pod in the host's network needs of it.
	Setup(ctx context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error)
	// Teardown releases whatever Setup took for id, complete or not; nothing to release is success.
	Teardown(ctx context.Context, id string) error
	// Holders are the ids for which something is taken.
	Holders() ([]string, error)
}

// Options are what a Store needs.
type Options struct {
	Dirs    layout.Dirs
	Network Network
	// ClusterDomain ends pods' full names.
	ClusterDomain string
	// CgroupDriver is that of new sandboxes.
	CgroupDriver ocispec.Driver
	Log          *slog.Logger
}

// Store keeps the sandboxes of one run directory, together with all other processes of that directory.
type Store struct {
	dir     string
	network Network
	cluster string
	driver  ocispec.Driver
	log     *slog.Logger
	machine func() (machine, error)
	// step is told each step of Create and Remove as it is done, for the tests that cut it short.
	step func(string)

	mu    sync.Mutex
	cache map[string]cached // by id
	// known are the pods of sandboxes, by id: what an id once stood for it stands for always, being a hash.
	known map[string]pod.Key
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
		cache:   map[string]cached{},
		known:   map[string]pod.Key{},
	}
}

// ID names a sandbox: the same pod, revision and attempt always give the same 32 hex digits.
func ID(key pod.Key, uid pod.UID, attempt int) string {
	sum := sha256.Sum256([]byte(key.Namespace + "\x00" + key.Name + "\x00" + string(uid) + "\x00" + strconv.Itoa(attempt)))
	return hex.EncodeToString(sum[:16])
}

// Create pins the pod's namespaces and connects its network. A ready sandbox of the same attempt is
// returned as it is; what an interrupted call left of it is removed first.
func (s *Store) Create(ctx context.Context, p *v1.Pod, attempt int, owner string) (pod.Sandbox, error) {
	id := ID(pod.KeyOf(p), p.UID, attempt)
	sb, err := s.create(ctx, id, p, attempt, owner)
	if err != nil {
		return pod.Sandbox{}, fmt.Errorf("creating sandbox %s of %s: %w", id, pod.KeyOf(p), err)
	}
	return sb, nil
}

func (s *Store) create(ctx context.Context, id string, p *v1.Pod, attempt int, owner string) (pod.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return pod.Sandbox{}, err
	}
	now, err := s.machine()
	if err != nil {
		return pod.Sandbox{}, err
	}
	e := entry{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, Attempt: attempt, Owner: owner,
		CreatedAt: time.Now().UTC().Round(0), HostNetwork: p.Spec.HostNetwork,
		HostIPC: p.Spec.HostIPC, Shm: sharesMemory(p), Systemd: s.driver == ocispec.Systemd, Boot: now.boot,
	}
	if share := p.Spec.ShareProcessNamespace; share != nil && *share {
		e.PauseCgroup = s.driver.OfPod(p) + "/" + pauseName + "-" + id
	}
	s.knows(id, e.key())
	lock, err := s.claim(id, &e, hasUsers(p))
	if err != nil {
		return pod.Sandbox{}, err
	}
	defer lock.Unlock()
	old, complete, err := s.read(id, s.full(id))
	if err != nil {
		return pod.Sandbox{}, err
	}
	if complete && s.full(id).ready(old, now) {
		return old.sandbox(id, true), nil
	}
	if err := s.clear(ctx, id); err != nil {
		return pod.Sandbox{}, fmt.Errorf("clearing what was left: %w", err)
	}
	if err := s.build(ctx, id, p, &e); err != nil {
		// Even when ctx has ended: an address that nobody uses must not stay taken.
		undo := context.WithoutCancel(ctx)
		return pod.Sandbox{}, errors.Join(err, s.clear(undo, id), s.forget(id))
	}
	return e.sandbox(id, true), nil
}

// build makes the pins, the network and the record, in the empty directory of id.
func (s *Store) build(ctx context.Context, id string, p *v1.Pod, e *entry) error {
	hostname, err := pod.KernelName(p, s.cluster)
	if err != nil {
		return err
	}
	if e.Users != 0 {
		err = pinWithUsers(s.path(id), e.pins(), hostname, e.Users, s.step)
	} else {
		err = pin(s.path(id), e.pins(), hostname, s.step)
	}
	if err != nil {
		return err
	}
	if err := s.connect(ctx, id, p, e); err != nil {
		return err
	}
	s.step("network")
	if err := s.tune(id, p, e.Users); err != nil {
		return err
	}
	if e.Shm {
		if err := mountShm(s.file(id, shmName), e.Users); err != nil {
			return err
		}
		s.step("shared memory")
	}
	if e.PauseCgroup != "" {
		if err := s.startPause(id, e); err != nil {
			return err
		}
	}
	return s.write(id, *e)
}

// connect gives the pod its network, for a pod in the host's only what it declares to use of that.
func (s *Store) connect(ctx context.Context, id string, p *v1.Pod, e *entry) error {
	netns := ""
	if !e.HostNetwork {
		netns = s.file(id, pinNet)
	} else if s.network == nil {
		return nil
	}
	ips, err := s.network.Setup(ctx, id, netns, p)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		e.IPs = append(e.IPs, ip.String())
	}
	return nil
}

// Remove releases all that the sandbox holds. One that is not there, or only in part, is success.
func (s *Store) Remove(ctx context.Context, id string) error {
	if !isID(id) {
		return fmt.Errorf("removing sandbox: %q is not a sandbox's id", id)
	}
	for {
		done, err := s.remove(ctx, id)
		if err != nil {
			return fmt.Errorf("removing sandbox %s: %w", id, err)
		}
		if done {
			return nil
		}
	}
}

// remove is one try of Remove; it is not done when another process began to make id meanwhile.
func (s *Store) remove(ctx context.Context, id string) (done bool, err error) {
	lock, err := host.LockExisting(s.path(id))
	if errors.Is(err, os.ErrNotExist) {
		return s.forgetIntent(id)
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	if err := s.clear(ctx, id); err != nil {
		return false, err
	}
	return true, s.forget(id)
}

// clear releases what id holds but for its own name: record first, so that it counts as half-made from
// now on. The caller holds id's lock.
func (s *Store) clear(ctx context.Context, id string) error {
	for _, name := range []string{recordName, recordName + ".tmp"} {
		if err := removeFile(s.file(id, name)); err != nil {
			return err
		}
	}
	s.step("record removed")
	if err := s.endPause(id); err != nil {
		return err
	}
	if s.network != nil {
		if err := s.network.Teardown(ctx, id); err != nil {
			return err
		}
	}
	s.step("network removed")
	if err := unmountShm(s.file(id, shmName)); err != nil {
		return err
	}
	s.step("shared memory removed")
	for _, name := range append(allPins[:], pinUser) {
		if err := unpin(s.file(id, name)); err != nil {
			return err
		}
		s.step(name + " removed")
	}
	return nil
}

func (s *Store) path(id string) string { return s.dir + "/" + id }

// isID keeps a caller's mistake from becoming a path.
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
