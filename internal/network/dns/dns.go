// Package dns lets the pods of a machine find each other by name. It keeps their /etc/hosts up to
// date, so that names resolve even while podrun does not run. There is no DNS server.
//
// The package decides which entries a pod has for other pods, and when they change. Package
// volume/etc writes the files, which have more in them, and is called through Hosts.
//
// Start reading at Names: Run watches the pods' addresses, Of returns the entries for one pod.
package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
)

// Checkpoints lists the checkpoints of all pods of a run directory; checkpoint.Store implements it.
type Checkpoints interface {
	// List returns the checkpoints by pod, newest first.
	List() (map[pod.Key][]*checkpoint.Checkpoint, error)
}

// Hosts rewrites the /etc/hosts of a pod that has one. A container can keep the kernel from answering: it may write to
// that file too, and a write locks out all others.
type Hosts interface {
	RefreshHosts(p *v1.Pod, s pod.Sandbox) error
}

// Options configure Names.
type Options struct {
	Checkpoints Checkpoints
	// Boot is the kernel's boot ID: the addresses of a sandbox of an earlier boot are not valid.
	Boot string
	// ClusterDomain is the suffix of full names.
	ClusterDomain string
	// HostIP returns the address of pods in the host's network; "" if it is not known.
	HostIP func() string
	Log    *slog.Logger
}

// Names has the names and addresses of the pods of one run directory. Its methods may be called
// concurrently.
type Names struct {
	o       Options
	changed chan struct{}

	mu    sync.Mutex
	peers []peer // sorted by namespace and name
}

// peer is a pod that has a sandbox of this boot, with its addresses.
type peer struct {
	pod     *v1.Pod
	sandbox pod.Sandbox
	ips     []string
	// near are the entries for it in the hosts files of pods of its namespace, far in those of others.
	near, far []pod.HostEntry
}

// entries returns the entries for the pod in hosts files of pods of the namespace from.
func (p *peer) entries(from string) []pod.HostEntry {
	if p.pod.Namespace == from {
		return p.near
	}
	return p.far
}

// New returns Names without any pod yet.
func New(o Options) *Names { return &Names{o: o, changed: make(chan struct{}, 1)} }

// The files are written when no change was reported for settle, or unsettled after the first
// change: many pods that start together then cost one update.
const (
	settle    = 200 * time.Millisecond
	unsettled = 2 * time.Second
)

// longest is how long the others wait for one pod's file.
const longest = time.Second

// Run keeps the files up to date until ctx ends, and returns ctx's error. If an update fails, it
// tries again after 10 s.
func (n *Names) Run(ctx context.Context, hosts Hosts) error {
	written, hung := map[pod.UID]string{}, map[pod.UID]<-chan struct{}{}
	for {
		var again <-chan time.Time
		if err := n.refresh(hosts, written, hung); err != nil {
			n.o.Log.Warn("updating the pods' hosts files failed: pods may not find each other by name", "err", err)
			again = time.After(10 * time.Second)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
		case <-n.changed:
			if err := n.quiet(ctx); err != nil {
				return err
			}
		}
	}
}

// quiet waits, after a notification, until no other one comes for settle, at most for unsettled.
func (n *Names) quiet(ctx context.Context) error {
	enough := time.After(unsettled)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.changed:
		case <-enough:
			return nil
		case <-time.After(settle):
			return nil
		}
	}
}

// SetIPs reports the current addresses of a pod, none if it is gone. It does not wait; if they have
// changed, Run updates the files.
func (n *Names) SetIPs(key pod.Key, ips []v1.PodIP) {
	var have []string
	n.mu.Lock()
	if at, ok := slices.BinarySearchFunc(n.peers, key, func(p peer, key pod.Key) int {
		return compare(pod.KeyOf(p.pod), key)
	}); ok {
		have = n.peers[at].ips
	}
	n.mu.Unlock()
	if !slices.EqualFunc(have, ips, func(a string, b v1.PodIP) bool { return a == b.IP }) {
		n.notify()
	}
}

func (n *Names) notify() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// Of returns the entries for the other pods that p's hosts file has: pods of p's namespace by their
// short names too.
func (n *Names) Of(p *v1.Pod) []pod.HostEntry {
	n.mu.Lock()
	defer n.mu.Unlock()
	out, own := make([]pod.HostEntry, 0, len(n.peers)), pod.KeyOf(p)
	for i := range n.peers {
		if other := &n.peers[i]; pod.KeyOf(other.pod) != own {
			out = append(out, other.entries(p.Namespace)...)
		}
	}
	return out
}

// AtStart returns the entries of Of for a pod that is being started. If it starts because another
// one is ready, its hosts file must have that pod's name: then AtStart reads the pods and their
// addresses now. Run updates the files of other pods later. If reading fails, the former entries
// are returned.
func (n *Names) AtStart(p *v1.Pod) []pod.HostEntry {
	if p.Annotations[pod.AnnotationAfter] != "" {
		if _, err := n.catchUp(); err != nil {
			n.o.Log.Debug("reading the pods' names failed: a pod starts with the former ones", "err", err)
		}
	}
	return n.Of(p)
}

func (n *Names) catchUp() ([]peer, error) {
	peers, err := n.listPeers()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.peers = peers
	n.mu.Unlock()
	return peers, nil
}

// refresh reads all pods and rewrites all files whose contents may have changed. written has what the
// pod's namespace saw of all pods when its file was last written, by UID. A file that cannot be written,
// as while its container executes it, keeps no other from being written, nor does one whose writing hangs: hung has
// what is closed when that has ended.
func (n *Names) refresh(hosts Hosts, written map[pod.UID]string, hung map[pod.UID]<-chan struct{}) error {
	peers, err := n.catchUp()
	if err != nil {
		return err
	}
	there, views := map[pod.UID]bool{}, map[string]string{}
	var errs []error
	for _, p := range peers {
		there[p.pod.UID] = true
		now, ok := views[p.pod.Namespace]
		if !ok {
			now = view(peers, p.pod.Namespace)
			views[p.pod.Namespace] = now
		}
		if was, ok := written[p.pod.UID]; ok && was == now {
			continue
		}
		delete(written, p.pod.UID) // it may be written although that takes too long
		if err := refreshInTime(hosts, p, hung); err != nil {
			errs = append(errs, err)
			continue
		}
		written[p.pod.UID] = now
	}
	maps.DeleteFunc(written, func(uid pod.UID, _ string) bool { return !there[uid] })
	maps.DeleteFunc(hung, func(uid pod.UID, _ <-chan struct{}) bool { return !there[uid] })
	return errors.Join(errs...)
}

// refreshInTime rewrites the file of one pod, unless that hangs since before.
func refreshInTime(hosts Hosts, p peer, hung map[pod.UID]<-chan struct{}) error {
	if done := hung[p.pod.UID]; done != nil {
		select {
		case <-done:
			delete(hung, p.pod.UID)
		default:
			return fmt.Errorf("refreshing /etc/hosts of %s: the write still hangs", pod.KeyOf(p.pod))
		}
	}
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = hosts.RefreshHosts(p.pod, p.sandbox)
	}()
	select {
	case <-done:
		return err
	case <-time.After(longest):
		hung[p.pod.UID] = done
		return fmt.Errorf("refreshing /etc/hosts of %s: not written within %s", pod.KeyOf(p.pod), longest)
	}
}

// view returns what a pod of the namespace from sees of all pods.
func view(peers []peer, from string) string {
	var b strings.Builder
	for i := range peers {
		for _, e := range peers[i].entries(from) {
			b.WriteString(e.IP)
			for _, name := range e.Names {
				b.WriteByte(' ')
				b.WriteString(name)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// listPeers returns the pods that have a complete sandbox of this boot, each with its newest one.
func (n *Names) listPeers() ([]peer, error) {
	all, err := n.o.Checkpoints.List()
	if err != nil {
		return nil, err
	}
	var peers []peer
	for _, of := range all {
		c, s := n.newest(of)
		if c == nil {
			continue
		}
		ips := s.IPs
		if ip := n.o.HostIP(); c.Pod.Spec.HostNetwork && ip != "" {
			ips = []string{ip}
		}
		near, far := called(c.Pod, n.o.ClusterDomain)
		p := peer{pod: c.Pod, sandbox: s, ips: ips}
		for _, ip := range ips {
			p.near = append(p.near, pod.HostEntry{IP: ip, Names: near})
			p.far = append(p.far, pod.HostEntry{IP: ip, Names: far})
		}
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(a, b peer) int { return compare(pod.KeyOf(a.pod), pod.KeyOf(b.pod)) })
	return peers, nil
}

// compare orders pods by namespace and name.
func compare(a, b pod.Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// newest returns a pod's newest complete sandbox of this boot with its checkpoint; nil if there is
// none.
func (n *Names) newest(of []*checkpoint.Checkpoint) (*checkpoint.Checkpoint, pod.Sandbox) {
	for _, c := range of {
		for i := len(c.Sandboxes) - 1; i >= 0; i-- {
			if s := c.Sandboxes[i]; s.Details.Complete && s.Boot == n.o.Boot {
				return c, s
			}
		}
	}
	return nil, pod.Sandbox{}
}

// called returns the names of p for pods of its own namespace: the manifest's name, the full one with
// the node's name, the hostname and <hostname>.<subdomain>; and each of them with p's namespace
// appended, as Kubernetes' DNS would have it. Pods of other namespaces get only the latter. No name is
// one that others may have outside of the machine; see isForeign.
func called(p *v1.Pod, cluster string) (near, far []string) {
	short := []string{strings.TrimSuffix(p.Name, "-"+p.Spec.NodeName), p.Name}
	if !p.Spec.HostNetwork {
		short = append(short, pod.Hostname(p))
	}
	var long []string
	for _, name := range short {
		name += "." + p.Namespace
		if isForeign(name) {
			name = strings.TrimRight(name+".pod."+cluster, ".")
		}
		long = append(long, name)
	}
	if domain := pod.Domain(p, cluster); domain != "" {
		name := pod.Hostname(p) + "." + p.Spec.Subdomain
		short = append(short, name)
		if !isForeign(name + "." + p.Namespace) {
			long = append(long, name+"."+p.Namespace)
		}
		long = append(long, name+"."+p.Namespace+".svc", pod.Hostname(p)+"."+domain)
	}
	short = slices.DeleteFunc(short, func(name string) bool {
		// The node's own name may be a public one. The author of a manifest does not choose it.
		ofNode := p.Spec.NodeName != "" && strings.HasSuffix(name, "-"+p.Spec.NodeName)
		return isForeign(name) && !ofNode
	})
	return distinct(append(short, long...)), distinct(long)
}

// distinct returns the names without repetitions.
func distinct(names []string) (out []string) {
	for _, name := range names {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// isForeign reports whether a name may be one of the Internet or of an organisation's network: its
// last label is a public top-level domain, or a usual private one. The hosts file precedes DNS, so
// whoever chooses a pod's name and namespace would get what other pods send to github.com.
func isForeign(name string) bool {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return false
	}
	last := name[dot+1:]
	_, public := publicsuffix.PublicSuffix("x." + last)
	return public || slices.Contains(privateDomains(), last)
}

// privateDomains returns the top-level domains that RFC 6762, appendix G, and ICANN name as usual in
// private networks, and those that are reserved for them.
func privateDomains() []string {
	return []string{
		"corp", "home", "internal", "intranet", "lan", "local", "localdomain", "localhost", "mail", "private",
	}
}
