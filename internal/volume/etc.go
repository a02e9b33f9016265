package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// header opens the hosts file that podrun writes.
const header = "# Written by podrun at each container start; changes made here are lost.\n"

// managed writes the files that podrun provides under /etc and returns their mounts.
func (v *Volumes) managed(p *v1.Pod, c *v1.Container, sandbox pod.Sandbox) ([]runtime.Mount, error) {
	contents, err := v.contents(p, sandbox)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	root, err := v.openPod(p.UID)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := filepath.Rel(v.dirs.Pod(p.UID), v.dirs.Etc(p.UID))
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var mounts []runtime.Mount
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		if err := refresh(root, filepath.Join(dir, name), contents[name]); err != nil {
			return nil, fmt.Errorf("writing the pod's /etc/%s: %w", name, err)
		}
		mounts = append(mounts, runtime.Mount{
			HostPath:      filepath.Join(v.dirs.Etc(p.UID), name),
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

func (v *Volumes) contents(p *v1.Pod, sandbox pod.Sandbox) (map[string][]byte, error) {
	resolv, err := v.resolvConf(p.Spec.HostNetwork)
	if err != nil {
		return nil, err
	}
	if !p.Spec.HostNetwork {
		name := pod.Hostname(p)
		return map[string][]byte{
			"hosts": podHosts(sandbox.IPs, name), "hostname": []byte(name + "\n"), "resolv.conf": resolv,
		}, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	hosts, err := v.hostFile("etc/hosts")
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"hosts": append([]byte(header), hosts...), "hostname": []byte(name + "\n"), "resolv.conf": resolv,
	}, nil
}

// podHosts is /etc/hosts of a pod with a network of its own.
func podHosts(ips []string, hostname string) []byte {
	var b bytes.Buffer
	b.WriteString(header)
	b.WriteString("127.0.0.1\tlocalhost\n")
	b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
	b.WriteString("fe00::\tip6-localnet\n")
	b.WriteString("ff00::\tip6-mcastprefix\n")
	b.WriteString("ff02::1\tip6-allnodes\n")
	b.WriteString("ff02::2\tip6-allrouters\n")
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, hostname)
	}
	return b.Bytes()
}

// resolvConf is the host's resolv.conf. A resolver on the host's loopback is out of a pod's reach; where
// that is all there is, systemd-resolved's own list of resolvers is taken, if it runs.
func (v *Volumes) resolvConf(hostNetwork bool) ([]byte, error) {
	conf, err := v.hostFile("etc/resolv.conf")
	if err != nil || hostNetwork || !onlyLoopback(conf) {
		return conf, err
	}
	behind, err := v.hostFile("run/systemd/resolve/resolv.conf")
	if err != nil || len(behind) == 0 {
		return conf, err
	}
	return behind, nil
}

// onlyLoopback reports that a resolv.conf names resolvers, all of them on the loopback.
func onlyLoopback(conf []byte) bool {
	found := false
	for line := range strings.Lines(string(conf)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(fields[1])
		if err != nil || !addr.Unmap().IsLoopback() {
			return false
		}
		found = true
	}
	return found
}

// hostFile reads a file of the host; a missing one is empty.
func (v *Volumes) hostFile(name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(v.host, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// refresh gives the file its content. One that differs is rewritten in place, because running containers have it mounted and would keep the old one.
func refresh(root *os.Root, name string, want []byte) error {
	f, err := root.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return create(root, name, want)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	have, err := io.ReadAll(f)
	if err != nil || bytes.Equal(have, want) {
		return err
	}
	// Written before it is cut, so that a reader meets as little of a gap as can be.
	if _, err := f.WriteAt(want, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(want)))
}

// create makes the file. One that a crash left half written is found to differ by the next refresh, which
// comes before any container has it.
func create(root *os.Root, name string, content []byte) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}
