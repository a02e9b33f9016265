// Package etc writes the files that podrun provides under a pod's /etc: hosts, hostname and
// resolv.conf. It decides their content by the rules of the kubelet; only the entries for other
// pods in /etc/hosts are decided by package network/dns, which also says when to write them again.
// It does not mount the files, and it does not remove them: they go with the pod's data directory.
//
// Begin reading at Files.
package etc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// header is the first line of the hosts file that podrun writes.
const header = "# Written by podrun at each container start; changes made here are lost.\n"

// Options are the parameters of New.
type Options struct {
	Dirs layout.Dirs
	// HostRoot is the directory below which the host's own /etc is read.
	HostRoot string
	// ClusterDNS are the DNS servers of pods with dnsPolicy ClusterFirst; if empty, they use those
	// of the host.
	ClusterDNS []string
	// ClusterDomain is the suffix of pods' fully qualified names.
	ClusterDomain string
	// Neighbours returns the host entries by which a pod can reach other pods; nil: none.
	Neighbours func(p *v1.Pod) []pod.HostEntry
	Log        *slog.Logger
}

// Files writes the files of the pods of one root directory. Its methods may be called concurrently.
type Files struct {
	o Options
	// mu guards writing, which has a lock for each pod whose files are being written. It is not held meanwhile: a
	// container that writes to such a file at length keeps its own pod waiting, and no other.
	mu      sync.Mutex
	writing map[pod.UID]*lock
	// unresolved limits the warning that pods have no DNS to one per process.
	unresolved sync.Once
}

type lock struct {
	sync.Mutex
	users int
}

// New returns Files. It changes nothing on disk.
func New(o Options) *Files { return &Files{o: o, writing: map[pod.UID]*lock{}} }

// lock keeps others from writing the files of a pod until unlock is called.
func (f *Files) lock(uid pod.UID) (unlock func()) {
	f.mu.Lock()
	l := f.writing[uid]
	if l == nil {
		l = &lock{}
		f.writing[uid] = l
	}
	l.users++
	f.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(f.writing, uid)
		}
	}
}

// Mounts writes the files of a pod into its data directory, which is opened as root, and returns the
// mounts of one of its containers.
func (f *Files) Mounts(root *os.Root, p *v1.Pod, c *v1.Container, sandbox pod.Sandbox) ([]pod.Mount, error) {
	defer f.lock(p.UID)() // before its contents: another writer may have newer ones
	contents, err := f.contents(p, sandbox)
	if err != nil {
		return nil, err
	}
	dir := f.o.Dirs.Revision(p.UID).Etc()
	if err := root.MkdirAll(filepath.Base(dir), layout.ModePrivate); err != nil {
		return nil, err
	}
	in, err := root.OpenRoot(filepath.Base(dir))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var mounts []pod.Mount
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		if err := refresh(in, dir, name, contents[name]); err != nil {
			return nil, fmt.Errorf("writing the pod's /etc/%s: %w", name, err)
		}
		mounts = append(mounts, pod.Mount{
			HostPath:      filepath.Join(dir, name),
			ContainerPath: "/etc/" + name,
			ReadOnly:      readOnlyRoot(c),
			Managed:       true,
		})
	}
	return mounts, nil
}

func readOnlyRoot(c *v1.Container) bool {
	s := c.SecurityContext
	return s != nil && s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
}

func (f *Files) contents(p *v1.Pod, sandbox pod.Sandbox) (map[string][]byte, error) {
	resolv, err := f.resolvConf(p)
	if err != nil {
		return nil, err
	}
	hosts, err := f.hosts(p, sandbox)
	if err != nil {
		return nil, err
	}
	name, err := pod.KernelName(p, f.o.ClusterDomain)
	if p.Spec.HostNetwork {
		name, err = os.Hostname()
	}
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"hosts": hosts, "hostname": []byte(name + "\n"), "resolv.conf": resolv}, nil
}

// RefreshHosts updates the /etc/hosts of a pod that has one already. It creates no file, because
// the pod may be terminating.
func (f *Files) RefreshHosts(p *v1.Pod, sandbox pod.Sandbox) error {
	if err := f.refreshHosts(p, sandbox); err != nil {
		return fmt.Errorf("refreshing /etc/hosts of %s: %w", pod.KeyOf(p), err)
	}
	return nil
}

func (f *Files) refreshHosts(p *v1.Pod, sandbox pod.Sandbox) error {
	defer f.lock(p.UID)()
	hosts, err := f.hosts(p, sandbox)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range []string{f.o.Dirs.Revision(p.UID).Etc(), f.o.Dirs.Legacy().Etc(p.UID)} {
		if err := rewrite(dir, "hosts", hosts); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// hosts returns the content of the pod's /etc/hosts. With host networking it begins with the
// host's.
func (f *Files) hosts(p *v1.Pod, sandbox pod.Sandbox) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header)
	if p.Spec.HostNetwork {
		hosts, err := f.hostFile("etc/hosts")
		if err != nil {
			return nil, err
		}
		b.Write(hosts)
		if len(hosts) > 0 && hosts[len(hosts)-1] != '\n' {
			b.WriteByte('\n')
		}
	} else {
		writeOwnHosts(&b, p, sandbox.IPs, f.o.ClusterDomain)
	}
	taken := map[string]bool{"localhost": true}
	if len(p.Spec.HostAliases) > 0 {
		b.WriteString("# hostAliases of the manifest\n")
	}
	for _, alias := range p.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
		for _, name := range alias.Hostnames {
			taken[name] = true
		}
	}
	if f.o.Neighbours != nil {
		writeNeighbours(&b, f.o.Neighbours(p), taken)
	}
	return b.Bytes(), nil
}

// writeOwnHosts writes the entries of a pod with a network namespace of its own.
func writeOwnHosts(b *bytes.Buffer, p *v1.Pod, ips []string, cluster string) {
	b.WriteString("127.0.0.1\tlocalhost\n")
	b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
	b.WriteString("fe00::\tip6-localnet\n")
	b.WriteString("ff00::\tip6-mcastprefix\n")
	b.WriteString("ff02::1\tip6-allnodes\n")
	b.WriteString("ff02::2\tip6-allrouters\n")
	name := pod.Hostname(p)
	if domain := pod.Domain(p, cluster); domain != "" {
		name = name + "." + domain + "\t" + name // the full name first, because hostname -f returns that
	}
	for _, ip := range ips {
		fmt.Fprintf(b, "%s\t%s\n", ip, name)
	}
}

// writeNeighbours writes the names of other pods, except names that the pod's own entries define.
func writeNeighbours(b *bytes.Buffer, all []pod.HostEntry, taken map[string]bool) {
	said := false
	for _, n := range all {
		names := n.Names
		if slices.ContainsFunc(names, func(name string) bool { return taken[name] }) {
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return taken[name] })
		}
		if len(names) == 0 {
			continue
		}
		if !said {
			b.WriteString("# pods of this machine\n")
			said = true
		}
		b.WriteString(n.IP)
		for _, name := range names {
			b.WriteByte('\t')
			b.WriteString(name)
		}
		b.WriteByte('\n')
	}
}

// hostFile reads a file of the host; a missing file is empty.
func (f *Files) hostFile(name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(f.o.HostRoot, name)) // trusted: the machine's own /etc
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// refresh updates the file, or creates it. A file that differs is rewritten in place, because
// running containers have it mounted and would keep the old one.
func refresh(root *os.Root, dir, name string, want []byte) error {
	err := rewrite(dir, name, want)
	if errors.Is(err, os.ErrNotExist) {
		return create(root, name, want)
	}
	return err
}

// rewrite replaces a file's content if it differs. A container may have written anything to the
// file, of any length.
func rewrite(dir, name string, want []byte) error {
	f, err := sys.OpenRegular(dir, name, sys.NoLinks, os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	have := make([]byte, len(want)+1) // one byte more, to see whether the file is longer
	n, err := io.ReadFull(f, have)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if bytes.Equal(have[:n], want) {
		return nil
	}
	// Written before it is truncated, to keep the moment short in which a reader sees incomplete
	// content.
	if _, err := f.WriteAt(want, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(want)))
}

// create creates the file. If a crash leaves it half written, the next refresh rewrites it before
// any container uses it.
func create(root *os.Root, name string, content []byte) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}
