// Package portmap owns the pods' host ports: the record of who has which port, the check that no
// process of the machine has it, and the nftables tables that forward it to a pod of podrun's
// bridge.
//
// It does not lock the directory of records: its callers do. It does not know the bridge beyond the
// bridge's record, nor how CNI plugins forward ports; for their pods it only keeps the records.
//
// Start reading at Ports.Reserve. publish.go installs the rules, which are in nat.go; flows.go ends
// what goes on in spite of them.
package portmap

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/records"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Record is the record of an ID's host ports.
type Record struct {
	// Pod is the pod, as namespace/name. A new revision of a pod takes over the ports of the old
	// one, which has ended.
	Pod string `json:"pod"`
	// UID is the pod's, which tells its revisions apart. Records of an older podrun have none.
	UID string `json:"uid,omitempty"`
	// Addr is the pod's IPv4 address that the ports are forwarded to. It is not set if podrun's
	// bridge forwards nothing, as with host networking.
	Addr netip.Addr `json:"addr,omitzero"`
	// Addr6 is the pod's IPv6 address, if it has one.
	Addr6 netip.Addr `json:"addr6,omitzero"`
	// Boot is the kernel's boot ID. A record of another boot is obsolete: its rules and its pod do
	// not exist any more.
	Boot  string         `json:"boot"`
	Ports []pod.HostPort `json:"ports"`
	// Group is what pods have in common that may share ports while they are updated (pod.UpdateGroup), and Surge says
	// that the pod is there for the update alone. Of those that share ports the one with the highest Sequence has
	// them.
	Group    string `json:"group,omitempty"`
	Surge    bool   `json:"surge,omitempty"`
	Sequence int    `json:"sequence,omitempty"`
	// Ending says that the pod has yielded its ports, because it is being ended: they are never given to it again.
	Ending bool `json:"ending,omitempty"`
}

// shares reports that two pods may have the same ports, of which one of them has them at a time. Only podrun's own
// bridge can give them to the other one.
func (c Record) shares(other Record) bool {
	forwarded := c.Addr.IsValid() && other.Addr.IsValid()
	return forwarded && (c.Surge && c.leads(other) || other.Surge && other.leads(c))
}

// leads reports that the surge c is of other's group. Records of an older podrun have none; there the name tells.
func (c Record) leads(other Record) bool {
	if other.Group != "" {
		return c.Group == other.Group
	}
	namespace, of, _ := strings.Cut(c.Group, "/")
	_, name, _ := strings.Cut(of, "/")
	return strings.HasPrefix(other.Pod, namespace+"/"+name+"-")
}

// RecordOf returns the record of p's host ports, before p has an address.
func RecordOf(p *v1.Pod) Record {
	group, surge := pod.UpdateGroup(p)
	return Record{Pod: pod.KeyOf(p).String(), UID: string(p.UID), Ports: pod.HostPorts(p), Group: group, Surge: surge}
}

// PortInUseError reports that another pod, another podrun or a process of the machine has a host
// port. It may be free at a later call.
type PortInUseError struct {
	Port pod.HostPort
	// By is the pod that has the port, as namespace/name; "" if it is not known.
	By string
	// Table is the nftables table of another podrun that has the port, with its family; "" if none has it.
	Table string
}

func (e *PortInUseError) Error() string {
	if e.Table != "" {
		return fmt.Sprintf("host port %s is in use by another podrun of this machine; nft list table %s shows it",
			e.Port, e.Table)
	}
	if e.By == "" {
		// podrun does not search for the process: that would be all descriptors of all processes.
		kind := map[v1.Protocol]string{v1.ProtocolUDP: "u", v1.ProtocolSCTP: "S"}[e.Port.Protocol]
		return fmt.Sprintf("host port %s is in use by a process of this machine; ss -l%snp 'sport = :%d' shows it",
			e.Port, cmp.Or(kind, "t"), e.Port.Port)
	}
	return fmt.Sprintf("host port %s is taken by pod %s", e.Port, e.By)
}

// Ports reserves and forwards the host ports of a network's pods.
type Ports struct {
	records *records.Dir
	// unrouted limits the warning that host ports do not answer on the loopback to one per process.
	unrouted sync.Once
	// forget is forgetFlows. unforgotten limits the warning that it fails to one per process.
	forget      func(ports, ended []forwarding) error
	unforgotten sync.Once
}

// New returns the host ports that are recorded in dir.
func New(dir *records.Dir) *Ports { return &Ports{records: dir, forget: forgetFlows} }

// Reserve records c's ports for id and forwards them. It returns a *PortInUseError if one of them is
// in use. If they cannot be forwarded, id has none. The caller holds the lock.
func (t *Ports) Reserve(id string, c Record) error {
	if len(c.Ports) == 0 {
		return nil
	}
	if err := c.check(); err != nil {
		return err
	}
	held, err := t.portRecords()
	if err != nil {
		return err
	}
	if err := t.free(id, c, held); err != nil {
		return err
	}
	left, err := t.foreign(c.Ports)
	if err != nil {
		return err
	}
	if left != "" && !c.Addr.IsValid() {
		t.records.Log.Warn("a podrun that has ended has left rules which divert a host port of the pod",
			"pod", c.Pod, "remedy", "nft delete table "+left)
	}
	c.Sequence = sequence(id, c, held)
	// A former revision that had ended by itself, so that nobody ended it, has not yielded yet; this one may need time.
	for other, h := range held {
		if other != id && h.Pod == c.Pod && h.UID != c.UID && h.UID != "" {
			if err := t.yield(other, held); err != nil {
				return err
			}
		}
	}
	ended, err := t.takeOver(id, c, held)
	if err != nil {
		return err
	}
	if c.Boot, err = t.records.Boot(); err != nil {
		return err
	}
	dir := filepath.Join(t.records.Path, records.PortDir)
	if err := os.Mkdir(dir, layout.ModePrivate); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := t.write(id, c); err != nil {
		return err
	}
	held[id] = c
	// Rules of ports that only a former revision has are to be removed too, and of tables the newest is in force.
	anew := len(ended) > 0 || left != ""
	if err = t.publish(held, change{id: id, anew: anew, ended: ended}); err != nil {
		// The rules of others must not depend on what this one cannot have.
		if undo := t.Release(id); undo != nil {
			t.records.Log.Debug("host ports that failed were not released", "id", id, "err", undo)
		}
	}
	return err
}

// check returns an error for ports that the pod can never have.
func (c Record) check() error {
	for _, p := range c.Ports {
		at, err := hostAddr(p)
		if err != nil {
			return err
		}
		if c.Addr.IsValid() && at == netip.IPv6Loopback() {
			return fmt.Errorf("host port %s: the kernel cannot forward from ::1; use 127.0.0.1", p)
		}
		if c.Addr.IsValid() && !c.Addr6.IsValid() && at.Is6() {
			return fmt.Errorf("host port %s: pods have no IPv6 address", p)
		}
	}
	targets := map[endpoint]netip.AddrPort{}
	for _, f := range forwardings(c) {
		at := endpoint{f.protocol, netip.AddrPortFrom(f.at, f.port)}
		if to, twice := targets[at]; twice && to != f.to { // the kernel would refuse the rules of all pods
			return fmt.Errorf("host port %s leads to two ports of the pod", at)
		}
		targets[at] = f.to
	}
	return nil
}

// free returns a *PortInUseError if another pod or a process has one of c's ports.
func (t *Ports) free(id string, c Record, held map[string]Record) error {
	for other, h := range held {
		if other == id || h.Pod == c.Pod || c.shares(h) {
			continue
		}
		if p, meets := conflict(c.Ports, h.Ports); meets {
			return &PortInUseError{Port: p, By: h.Pod}
		}
	}
	if !c.Addr.IsValid() {
		return nil
	}
	for _, p := range c.Ports {
		if err := Probe(p); err != nil {
			return err
		}
		if c.Addr6.IsValid() && p.HostIP == "" {
			if err := probeAt(p, netip.IPv6Unspecified()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Ports) write(id string, c Record) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return sys.ReplaceFile(filepath.Join(t.records.Path, records.PortDir, id), text, 0o600)
}

// sequence returns the sequence of a new record: that of the pod's former one or, without one, the least. A pod that is
// there for the update alone comes after the one that it is there for, whichever of them starts first, until that one
// yields. Then it comes before it, also if that one begins anew.
func sequence(id string, c Record, held map[string]Record) int {
	for other, h := range held {
		if other == id || h.Pod == c.Pod {
			return h.Sequence
		}
	}
	if c.Surge {
		return 0
	}
	return leastSequence
}

// leastSequence is that of a pod that is not there for an update alone, and less than that of one which was given its
// ports.
const leastSequence = 1

// Yield gives id's ports to another pod of its group that shares them, if there is one: connections to them are then
// that pod's. Existing TCP connections stay where they are. The caller holds the lock.
func (t *Ports) Yield(id string) error {
	held, err := t.portRecords()
	if err != nil {
		return err
	}
	return t.yield(id, held)
}

func (t *Ports) yield(id string, held map[string]Record) error {
	mine, next := held[id], successor(id, held)
	if _, there := held[id]; there && !mine.Ending {
		mine.Ending = true
		if err := t.write(id, mine); err != nil {
			return err
		}
		held[id] = mine
	}
	if next == "" || held[next].Sequence > mine.Sequence {
		return nil
	}
	c := held[next]
	c.Sequence = max(mine.Sequence, leastSequence) + 1
	if err := t.write(next, c); err != nil {
		return err
	}
	held[next] = c
	return t.publish(held, change{id: next})
}

// successor returns which pod has the ports that id shares when id has them no more; "" if there is none.
func successor(id string, held map[string]Record) (next string) {
	mine := held[id]
	for _, other := range slices.Sorted(maps.Keys(held)) {
		if h := held[other]; other != id && h.Pod != mine.Pod && !h.Ending && mine.shares(h) &&
			(next == "" || h.Sequence > held[next].Sequence) {
			next = other
		}
	}
	return next
}

// Has reports that id has host ports. It needs no lock.
func (t *Ports) Has(id string) bool {
	_, err := os.Lstat(filepath.Join(t.records.Path, records.PortDir, id))
	return err == nil
}

// takeOver removes the port records of other revisions of the same pod, and returns them.
func (t *Ports) takeOver(id string, c Record, held map[string]Record) (ended []Record, err error) {
	for other, h := range held {
		if other != id && h.Pod == c.Pod {
			delete(held, other)
			ended = append(ended, h)
			if err := os.Remove(filepath.Join(t.records.Path, records.PortDir, other)); err != nil {
				return nil, err
			}
		}
	}
	return ended, nil
}

// Release frees id's ports: first the rules, then the record, so that an interrupted call is
// repeated. The caller holds the lock.
func (t *Ports) Release(id string) error {
	file := filepath.Join(t.records.Path, records.PortDir, id)
	if _, err := os.Lstat(file); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	held, err := t.portRecords()
	if err != nil {
		return err
	}
	ended, next := held[id], successor(id, held)
	delete(held, id)
	if err := t.publish(held, change{id: next, anew: true, ended: []Record{ended}}); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	if err := os.Remove(filepath.Dir(file)); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// portRecords returns the port records of this boot by ID. It ignores a file that cannot be decoded: a power
// cut interrupted its writing, and the record was not in force before.
func (t *Ports) portRecords() (map[string]Record, error) {
	boot, err := t.records.Boot()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(t.records.Path, records.PortDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	held := make(map[string]Record, len(entries))
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		var c Record
		if json.Unmarshal(text, &c) == nil && c.Boot == boot {
			held[e.Name()] = c
		}
	}
	return held, nil
}

// Repair installs the rules for all port records again, and removes those that are for none.
func (t *Ports) Repair() error {
	held, err := t.portRecords()
	if err != nil {
		return err
	}
	return t.publish(held, change{all: true})
}

// ForgetUnmasked makes flows begin anew that pods began while no rule masqueraded them.
func (t *Ports) ForgetUnmasked(rec records.Record) {
	if err := forgetUnmasked(rec.Subnets()); err != nil { // which a kernel may not let podrun do
		t.records.Log.Debug("flows of pods that are not masqueraded stay so", "err", err)
	}
}

// IDs returns the IDs that have a port record, also those of another boot.
func (t *Ports) IDs() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(t.records.Path, records.PortDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.Name()
	}
	return ids, nil
}

// conflict returns the first port of mine that conflicts with one of theirs: same number and
// protocol, and addresses that are equal or of which one is unspecified.
func conflict(mine, theirs []pod.HostPort) (pod.HostPort, bool) {
	for _, m := range mine {
		for _, t := range theirs {
			if m.Port != t.Port || m.Protocol != t.Protocol {
				continue
			}
			a, errA := hostAddr(m)
			b, errB := hostAddr(t)
			if errA == nil && errB == nil && (a == b || a.IsUnspecified() || b.IsUnspecified()) {
				return m, true
			}
		}
	}
	return pod.HostPort{}, false
}
