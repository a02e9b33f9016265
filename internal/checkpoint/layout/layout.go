// Package layout defines the path of every file and directory that podrun uses below its root, run
// and log directories; no other package composes such a path. It is pure: it creates and removes
// nothing. Begin reading at [Dirs].
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

// Dirs are podrun's base directories. Its methods return the paths below them.
type Dirs struct {
	// Root holds what survives a reboot.
	Root string
	// Run holds what need not survive a reboot: sockets, pinned namespaces, locks, status files.
	Run string
	// Log holds the containers' logs in CRI format.
	Log string
}

// Pods returns the directory of all pods' data.
func (d Dirs) Pods() string { return filepath.Join(d.Root, "pods") }

// Pod returns the directory of a revision.
func (d Dirs) Pod(uid pod.UID) string { return filepath.Join(d.Pods(), string(uid)) }

// Checkpoint returns the checkpoint file of a revision, in JSON.
func (d Dirs) Checkpoint(uid pod.UID) string { return filepath.Join(d.Pod(uid), "checkpoint.json") }

// Manifest returns the file in which earlier versions stored the pod that a revision runs, in JSON.
func (d Dirs) Manifest(uid pod.UID) string { return filepath.Join(d.Pod(uid), "pod.json") }

// Instances returns the file in which earlier versions stored the newest instance of each container
// of a revision, in JSON.
func (d Dirs) Instances(uid pod.UID) string { return filepath.Join(d.Pod(uid), "instances.json") }

// Manifests returns the directory of the manifests that URLs served last.
func (d Dirs) Manifests() string { return filepath.Join(d.Root, "manifests") }

// Seccomp returns the directory of the node's own seccomp profiles, which manifests refer to with
// the type Localhost.
func (d Dirs) Seccomp() string { return filepath.Join(d.Root, "seccomp") }

// The kinds of volumes: the kubelet's names for their directories.
const (
	KindEmptyDir    = "kubernetes.io~empty-dir"
	KindConfigMap   = "kubernetes.io~configmap"
	KindSecret      = "kubernetes.io~secret"
	KindDownwardAPI = "kubernetes.io~downward-api"
	KindProjected   = "kubernetes.io~projected"
	KindNFS         = "kubernetes.io~nfs"
	KindImage       = "kubernetes.io~image"
)

// Volumes returns the directory of a revision's own volumes.
func (d Dirs) Volumes(uid pod.UID) string { return filepath.Join(d.Pod(uid), "volumes") }

// Volume returns the directory of one of a revision's own volumes.
func (d Dirs) Volume(uid pod.UID, kind, name string) string {
	return filepath.Join(d.Volumes(uid), kind, name)
}

// Withheld returns the directory, in memory, of what a revision's processes get but no disk may
// contain, such as Secret values in environment variables.
func (d Dirs) Withheld(uid pod.UID) string { return filepath.Join(d.Pod(uid), "withheld") }

// bin is the directory of podrun's own binary under other names.
const bin = "bin"

// StandIn returns the path of podrun's own binary that is run instead of runc, or instead of
// another binary with the same command line, for containers that have withheld data. An empty
// binary means runc.
func (d Dirs) StandIn(binary string) string {
	const name = "podrun-runc"
	if binary == "" {
		return filepath.Join(d.Root, bin, name)
	}
	hash := sha256.Sum256([]byte(binary))
	return filepath.Join(d.Root, bin, hex.EncodeToString(hash[:8]), name)
}

// RootOfStandIn returns the root directory that contains the stand-in at path.
func RootOfStandIn(path string) string {
	dir := filepath.Dir(path)
	if filepath.Base(dir) != bin { // the name of a hash directory is never that
		dir = filepath.Dir(dir)
	}
	return filepath.Dir(dir)
}

// SubPaths returns the directory of the subPath mounts of a revision's containers.
func (d Dirs) SubPaths(uid pod.UID) string { return filepath.Join(d.Pod(uid), "volume-subpaths") }

// SubPath returns the path at which the subPath of a container's volume mount, given by its index,
// is bound.
func (d Dirs) SubPath(uid pod.UID, volume, container string, mount int) string {
	return filepath.Join(d.SubPaths(uid), volume, container, strconv.Itoa(mount))
}

// EmptyDir returns the directory of an emptyDir volume's content.
func (d Dirs) EmptyDir(uid pod.UID, volume string) string { return d.Volume(uid, KindEmptyDir, volume) }

// Claims returns the directory of the volumes that outlive pods.
func (d Dirs) Claims() string { return filepath.Join(d.Root, "claims") }

// Claim returns the directory of the volume of a PersistentVolumeClaim.
func (d Dirs) Claim(namespace, name string) string { return filepath.Join(d.Claims(), namespace, name) }

// Etc returns the directory of the files that podrun provides in a pod's containers, such as
// /etc/hosts. Containers can write to them, so they are stored with the volumes and not in the run
// directory, whose memory all pods share.
func (d Dirs) Etc(uid pod.UID) string { return filepath.Join(d.Pod(uid), "etc") }

// LegacyEtcs returns the directory in which earlier versions kept the Etc directories of all pods.
func (d Dirs) LegacyEtcs() string { return filepath.Join(d.Run, "etc") }

// LegacyEtc returns the Etc directory of a pod in earlier versions. Containers that those versions
// started still use it.
func (d Dirs) LegacyEtc(uid pod.UID) string { return filepath.Join(d.LegacyEtcs(), string(uid)) }

// RawLog returns the directory of the raw output of the instance with the ID: stdout.raw,
// stderr.raw and how much of both has been converted to CRI format. An ID is used once, so no other
// instance has the same directory.
func (d Dirs) RawLog(uid pod.UID, container, id string) string {
	return filepath.Join(d.Pod(uid), "log."+container+"."+id)
}

// RawLogs returns the directories that may be an instance's RawLog: its own or, if that does not
// exist, the one that earlier versions named by its attempt.
func (d Dirs) RawLogs(i pod.Instance) []string {
	legacy := d.RawLog(i.UID, i.Container, strconv.Itoa(i.Attempt))
	if i.ID == "" {
		return []string{legacy}
	}
	return []string{d.RawLog(i.UID, i.Container, i.ID), legacy}
}

// Stdin returns the FIFO of an instance's standard input, if it has one, in its RawLog.
func Stdin(rawLog string) string { return filepath.Join(rawLog, "stdin") }

// TerminationLog returns the file for an instance's termination message, in its RawLog.
func TerminationLog(rawLog string) string { return filepath.Join(rawLog, "termination-log") }

// PodLogs returns the directory of a revision's logs in CRI format.
func (d Dirs) PodLogs(key pod.Key, uid pod.UID) string {
	return filepath.Join(d.Log, key.Namespace+"_"+key.Name+"_"+string(uid))
}

// ContainerLog returns the log file of one instance in CRI format.
func (d Dirs) ContainerLog(key pod.Key, uid pod.UID, container string, attempt int) string {
	return filepath.Join(d.PodLogs(key, uid), container, strconv.Itoa(attempt)+".log")
}

// Sandboxes returns the directory of the pinned namespaces of all sandboxes.
func (d Dirs) Sandboxes() string { return filepath.Join(d.Run, "sandboxes") }

// Devices returns the directory that has a file for each sandbox that uses devices of the node's
// configuration.
func (d Dirs) Devices() string { return filepath.Join(d.Run, "devices") }

// SandboxUsers returns the path at which a sandbox's user namespace is pinned, if it has one.
func (d Dirs) SandboxUsers(id string) string { return filepath.Join(d.Sandboxes(), id, "user") }

// ShimHomes returns the directory of the directories of all shims that podrun started.
func (d Dirs) ShimHomes() string { return filepath.Join(d.Run, "shims") }

// ShimHome returns the directory of the shim that podrun started for a sandbox.
func (d Dirs) ShimHome(id string) string { return filepath.Join(d.ShimHomes(), id) }

// Network returns the directory of the bridge's address records.
func (d Dirs) Network() string { return filepath.Join(d.Run, "network") }

// Events returns the event file, which has one event per line.
func (d Dirs) Events() string { return filepath.Join(d.Root, "events.jsonl") }

// Images returns the directory of the image archives that are loaded when podrun starts.
func (d Dirs) Images() string { return filepath.Join(d.Root, "images") }

// LoadedImages returns the file that records which archives have been loaded, in JSON.
func (d Dirs) LoadedImages() string { return filepath.Join(d.Root, "loaded-images.json") }

// UsedImages returns the file that records when images were last used, in JSON.
func (d Dirs) UsedImages() string { return filepath.Join(d.Root, "used-images.json") }

// Fetching returns the directory of the locks of pulls in progress.
func (d Dirs) Fetching() string { return filepath.Join(d.Run, "fetching") }

// ImageViews returns the directory in which podrun mounts images for a moment to read their files.
func (d Dirs) ImageViews() string { return filepath.Join(d.Run, "image-views") }

// CNI returns the directory of the calls made to CNI plugins. It survives a reboot, as the plugins'
// own records do.
func (d Dirs) CNI() string { return filepath.Join(d.Root, "cni") }

// CNICache returns the directory in which the CNI library caches the plugins' results.
func (d Dirs) CNICache() string { return filepath.Join(d.CNI(), "cache") }

// Binding returns the file that records which containerd, and which namespace of it, holds the run
// directory's pods.
func (d Dirs) Binding() string { return filepath.Join(d.Run, "place") }

// PodLocks returns the directory of the owner locks, which give each pod one owner process.
func (d Dirs) PodLocks() string { return filepath.Join(d.Run, "owners") }

// PodLock returns the file that the pod's owner process has locked.
func (d Dirs) PodLock(key pod.Key) string {
	return filepath.Join(d.PodLocks(), key.Namespace+"_"+key.Name)
}

// Statuses returns the directory of the status files.
func (d Dirs) Statuses() string { return filepath.Join(d.Run, "status") }

// Status returns a pod's status file.
func (d Dirs) Status(key pod.Key) string {
	return filepath.Join(d.Statuses(), key.Namespace+"_"+key.Name+".json")
}

// SuffixNotOwned is the suffix of the files that NotOwned returns.
const SuffixNotOwned = ".owned-by-other"

// NotOwned returns the file with which serve shows that another process owns a pod.
func (d Dirs) NotOwned(key pod.Key) string {
	return filepath.Join(d.Statuses(), key.Namespace+"_"+key.Name+SuffixNotOwned)
}

// StartedOf returns the directory of the files in which earlier versions kept the notes of a
// revision's instances.
func (d Dirs) StartedOf(uid pod.UID) string { return filepath.Join(d.Pod(uid), "started") }

// ManifestProblems returns the file that lists the current problems of manifests.
func (d Dirs) ManifestProblems() string { return filepath.Join(d.Run, "manifest-problems.json") }

// Seen returns the file that records until when statuses were kept up to date.
func (d Dirs) Seen() string { return filepath.Join(d.Run, "seen") }

// Socket returns the Unix socket on which serve answers HTTP.
func (d Dirs) Socket() string { return filepath.Join(d.Run, "podrun.sock") }

// Started returns the file from which earlier versions knew that an instance's process may have
// run.
func (d Dirs) Started(uid pod.UID, id string) string { return filepath.Join(d.StartedOf(uid), id) }

// Fifos returns the directory of the FIFOs of exec and attach.
func (d Dirs) Fifos() string { return filepath.Join(d.Run, "fifo") }

// Containerd returns the persistent directory of the embedded containerd.
func (d Dirs) Containerd() string { return filepath.Join(d.Root, "containerd") }

// ContainerdState returns the directory of the embedded containerd's socket and runtime state.
func (d Dirs) ContainerdState() string { return filepath.Join(d.Run, "containerd") }

// ContainerdSocket returns the socket of the embedded containerd.
func (d Dirs) ContainerdSocket() string { return filepath.Join(d.ContainerdState(), "containerd.sock") }

// Shim returns the runtime shim: podrun's own binary under the shim's name.
func (d Dirs) Shim() string { return filepath.Join(d.Root, bin, "containerd-shim-runc-v2") }

// Runc returns the state directory of podrun's runc, separate from that of any other user of runc.
func (d Dirs) Runc() string { return filepath.Join(d.Run, "runc") }

// CheckUID returns an error for a UID that would change the directory of a path: empty, a dot name,
// or one with a slash or a NUL.
func CheckUID(uid pod.UID) error {
	if uid == "" || uid == "." || uid == ".." || strings.ContainsAny(string(uid), "/\x00") {
		return fmt.Errorf("pod UID %q cannot be a directory's name", uid)
	}
	return nil
}
