// Package layout says where podrun keeps what: every path under the root, run and log directories is
// spelled here and nowhere else. It is pure; it makes and removes nothing.
package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"podrun.io/podrun/internal/pod"
)

// Dirs are podrun's directories.
type Dirs struct {
	// Root survives a reboot.
	Root string
	// Run need not: sockets, pins, locks, status.
	Run string
	// Log holds the containers' logs in CRI format.
	Log string
}

// Pods is the directory of all pods' data.
func (d Dirs) Pods() string { return filepath.Join(d.Root, "pods") }

// Pod is a revision's own directory.
func (d Dirs) Pod(uid pod.UID) string { return filepath.Join(d.Pods(), string(uid)) }

// Checkpoint is the file that has what is kept of a revision, as JSON.
func (d Dirs) Checkpoint(uid pod.UID) string { return filepath.Join(d.Pod(uid), "checkpoint.json") }

// Manifest is the file in which the former version kept the pod that a revision runs, as JSON.
func (d Dirs) Manifest(uid pod.UID) string { return filepath.Join(d.Pod(uid), "pod.json") }

// Instances is the file in which the former version kept the newest instance of each of a revision's containers, as
// JSON.
func (d Dirs) Instances(uid pod.UID) string { return filepath.Join(d.Pod(uid), "instances.json") }

// Manifests is the directory of the manifests that URLs served last.
func (d Dirs) Manifests() string { return filepath.Join(d.Root, "manifests") }

// Seccomp is the directory of the node's own seccomp profiles, which manifests name as Localhost.
func (d Dirs) Seccomp() string { return filepath.Join(d.Root, "seccomp") }

// The kinds of volumes, by the kubelet's names for their directories.
const (
	KindEmptyDir    = "kubernetes.io~empty-dir"
	KindConfigMap   = "kubernetes.io~configmap"
	KindSecret      = "kubernetes.io~secret"
	KindDownwardAPI = "kubernetes.io~downward-api"
	KindProjected   = "kubernetes.io~projected"
	KindNFS         = "kubernetes.io~nfs"
	KindImage       = "kubernetes.io~image"
)

// Volumes is the directory of a revision's own volumes.
func (d Dirs) Volumes(uid pod.UID) string { return filepath.Join(d.Pod(uid), "volumes") }

// Volume is where one of a revision's own volumes is.
func (d Dirs) Volume(uid pod.UID, kind, name string) string {
	return filepath.Join(d.Volumes(uid), kind, name)
}

// Withheld is the directory, in memory, of what a revision's processes get and no disk may have.
func (d Dirs) Withheld(uid pod.UID) string { return filepath.Join(d.Pod(uid), "withheld") }

// bin is the directory of podrun's own binary under other names.
const bin = "bin"

// StandIn is what runs runc, or another binary that takes its commands, for containers with something
// withheld: podrun's own binary. "" is runc.
func (d Dirs) StandIn(binary string) string {
	const name = "podrun-runc"
	if binary == "" {
		return filepath.Join(d.Root, bin, name)
	}
	hash := sha256.Sum256([]byte(binary))
	return filepath.Join(d.Root, bin, hex.EncodeToString(hash[:8]), name)
}

// RootOfStandIn is the root directory that has the stand-in at the path.
func RootOfStandIn(path string) string {
	dir := filepath.Dir(path)
	if filepath.Base(dir) != bin { // no hash is that
		dir = filepath.Dir(dir)
	}
	return filepath.Dir(dir)
}

// SubPaths is the directory of the parts of volumes that a revision's containers mount.
func (d Dirs) SubPaths(uid pod.UID) string { return filepath.Join(d.Pod(uid), "volume-subpaths") }

// SubPath is where the part of a volume is that a container's mount, by its index, is of.
func (d Dirs) SubPath(uid pod.UID, volume, container string, mount int) string {
	return filepath.Join(d.SubPaths(uid), volume, container, strconv.Itoa(mount))
}

// EmptyDir is where an emptyDir volume's content is.
func (d Dirs) EmptyDir(uid pod.UID, volume string) string { return d.Volume(uid, KindEmptyDir, volume) }

// Claims is the directory of the volumes that outlive pods.
func (d Dirs) Claims() string { return filepath.Join(d.Root, "claims") }

// Claim is the directory of the volume that a PersistentVolumeClaim of that name stands for.
func (d Dirs) Claim(namespace, name string) string { return filepath.Join(d.Claims(), namespace, name) }

// Etc is the directory of the files that podrun provides in a pod's containers, such as hosts. Containers write to
// them, so they are where volumes are, and not in the run directory, whose memory is everybody's.
func (d Dirs) Etc(uid pod.UID) string { return filepath.Join(d.Pod(uid), "etc") }

// LegacyEtcs is the directory of those of all pods of the former version.
func (d Dirs) LegacyEtcs() string { return filepath.Join(d.Run, "etc") }

// LegacyEtc is the Etc that the former version gave a pod. Containers that it started go on with it.
func (d Dirs) LegacyEtc(uid pod.UID) string { return filepath.Join(d.LegacyEtcs(), string(uid)) }

// RawLog is the directory that holds what the instance of that ID wrote: stdout.raw, stderr.raw and how far both
// have been turned into CRI format. An ID is used once, so no other instance has it.
func (d Dirs) RawLog(uid pod.UID, container, id string) string {
	return filepath.Join(d.Pod(uid), "log."+container+"."+id)
}

// RawLogs are the directories that may be an instance's RawLog: its own or, if there is none, the one that the former
// version gave it by its attempt.
func (d Dirs) RawLogs(i pod.Instance) []string {
	legacy := d.RawLog(i.UID, i.Container, strconv.Itoa(i.Attempt))
	if i.ID == "" {
		return []string{legacy}
	}
	return []string{d.RawLog(i.UID, i.Container, i.ID), legacy}
}

// Stdin is the pipe that an instance's standard input is read from, if it has one, in its RawLog.
func Stdin(rawLog string) string { return filepath.Join(rawLog, "stdin") }

// TerminationLog is the file that an instance writes its last words to, in its RawLog.
func TerminationLog(rawLog string) string { return filepath.Join(rawLog, "termination-log") }

// PodLogs is the directory of a revision's logs in CRI format.
func (d Dirs) PodLogs(key pod.Key, uid pod.UID) string {
	return filepath.Join(d.Log, key.Namespace+"_"+key.Name+"_"+string(uid))
}

// ContainerLog is one instance's log in CRI format.
func (d Dirs) ContainerLog(key pod.Key, uid pod.UID, container string, attempt int) string {
	return filepath.Join(d.PodLogs(key, uid), container, strconv.Itoa(attempt)+".log")
}

// Sandboxes is the directory of all sandboxes' pins.
func (d Dirs) Sandboxes() string { return filepath.Join(d.Run, "sandboxes") }

// Devices has a file for each sandbox that has devices of the node's configuration.
func (d Dirs) Devices() string { return filepath.Join(d.Run, "devices") }

// SandboxUsers is where the namespace of a sandbox's own users is pinned, if it has any.
func (d Dirs) SandboxUsers(id string) string { return filepath.Join(d.Sandboxes(), id, "user") }

// ShimHomes is the directory of those of all shims that podrun started.
func (d Dirs) ShimHomes() string { return filepath.Join(d.Run, "shims") }

// ShimHome is the directory of the shim that podrun started for a sandbox.
func (d Dirs) ShimHome(id string) string { return filepath.Join(d.ShimHomes(), id) }

// Network is the directory of the bridge's address records.
func (d Dirs) Network() string { return filepath.Join(d.Run, "network") }

// Events is the file of what happened to pods, a line each.
func (d Dirs) Events() string { return filepath.Join(d.Root, "events.jsonl") }

// Images is the directory of the archives of images that are loaded at the start.
func (d Dirs) Images() string { return filepath.Join(d.Root, "images") }

// LoadedImages is the file that says which archives have been loaded, as JSON.
func (d Dirs) LoadedImages() string { return filepath.Join(d.Root, "loaded-images.json") }

// UsedImages is the file that says when images were used last, as JSON.
func (d Dirs) UsedImages() string { return filepath.Join(d.Root, "used-images.json") }

// Fetching is the directory of the locks of pulls that are under way.
func (d Dirs) Fetching() string { return filepath.Join(d.Run, "fetching") }

// ImageViews is the directory in which images' files are shown for a moment, to podrun only.
func (d Dirs) ImageViews() string { return filepath.Join(d.Run, "image-views") }

// CNI is the directory of what CNI's plugins were asked for; it outlives a reboot, as their records do.
func (d Dirs) CNI() string { return filepath.Join(d.Root, "cni") }

// CNICache is where CNI's own library keeps what the plugins answered.
func (d Dirs) CNICache() string { return filepath.Join(d.CNI(), "cache") }

// Binding is the file that says in which containerd, and which namespace of it, the run directory's pods are.
func (d Dirs) Binding() string { return filepath.Join(d.Run, "place") }

// PodLocks is the directory of the files by which pods have one owner process each.
func (d Dirs) PodLocks() string { return filepath.Join(d.Run, "owners") }

// PodLock is the file that the pod's owner process has locked.
func (d Dirs) PodLock(key pod.Key) string {
	return filepath.Join(d.PodLocks(), key.Namespace+"_"+key.Name)
}

// Statuses is the directory of the status files.
func (d Dirs) Statuses() string { return filepath.Join(d.Run, "status") }

// Status is a pod's status file.
func (d Dirs) Status(key pod.Key) string {
	return filepath.Join(d.Statuses(), key.Namespace+"_"+key.Name+".json")
}

// SuffixNotOwned ends the name of a file that NotOwned names.
const SuffixNotOwned = ".owned-by-other"

// NotOwned is the file in which serve shows that another process has a pod.
func (d Dirs) NotOwned(key pod.Key) string {
	return filepath.Join(d.Statuses(), key.Namespace+"_"+key.Name+SuffixNotOwned)
}

// StartedOf is the directory of the files in which the former version kept the courses of a revision's instances.
func (d Dirs) StartedOf(uid pod.UID) string { return filepath.Join(d.Pod(uid), "started") }

// ManifestProblems is the file that says what is wrong with manifests now.
func (d Dirs) ManifestProblems() string { return filepath.Join(d.Run, "manifest-problems.json") }

// Seen is the file that says until when statuses were kept up to date.
func (d Dirs) Seen() string { return filepath.Join(d.Run, "seen") }

// Socket is where serve answers HTTP.
func (d Dirs) Socket() string { return filepath.Join(d.Run, "podrun.sock") }

// Started is the file by which the former version knew that an instance's process may have run.
func (d Dirs) Started(uid pod.UID, id string) string { return filepath.Join(d.StartedOf(uid), id) }

// Fifos is the directory of the pipes of exec and attach.
func (d Dirs) Fifos() string { return filepath.Join(d.Run, "fifo") }

// Containerd is the embedded containerd's persistent directory, ContainerdState its other one.
func (d Dirs) Containerd() string { return filepath.Join(d.Root, "containerd") }

// ContainerdState holds the embedded containerd's socket and run-time state.
func (d Dirs) ContainerdState() string { return filepath.Join(d.Run, "containerd") }

// ContainerdSocket is the embedded containerd's address.
func (d Dirs) ContainerdSocket() string { return filepath.Join(d.ContainerdState(), "containerd.sock") }

// Shim is the runtime shim: podrun's own binary under the shim's name.
func (d Dirs) Shim() string { return filepath.Join(d.Root, bin, "containerd-shim-runc-v2") }

// Runc is runc's own state directory, apart from every other user of runc.
func (d Dirs) Runc() string { return filepath.Join(d.Run, "runc") }

// CheckUID refuses a UID that would lead a path elsewhere.
func CheckUID(uid pod.UID) error {
	if uid == "" || uid == "." || uid == ".." || strings.ContainsAny(string(uid), "/\x00") {
		return fmt.Errorf("pod UID %q cannot be a directory's name", uid)
	}
	return nil
}
