// Package layout defines podrun's directories below its root, run and log directories, and the
// paths in them that several packages use. Files that only one package uses are named by that
// package, such as those of network/records or embedded. The package is pure: it creates and
// removes nothing. Begin reading at [Dirs].
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
	// LogLinks is shared with other programs and holds links to the logs for log collectors; "" means
	// no links.
	LogLinks string
}

// Pods returns the directory of all pods' data.
func (d Dirs) Pods() string { return filepath.Join(d.Root, "pods") }

// Pod returns the directory of a revision.
func (d Dirs) Pod(uid pod.UID) string { return filepath.Join(d.Pods(), string(uid)) }

// Runs returns the directory of the recorded runs of Jobs.
func Runs(d Dirs) string { return filepath.Join(d.Root, "runs") }

// Manifests returns the directory of the manifests that URLs and commands served last, and of the
// identities of manifest directories.
func (d Dirs) Manifests() string { return filepath.Join(d.Root, "manifests") }

// Seccomp returns the directory of the node's own seccomp profiles, which manifests refer to with
// the type Localhost.
func (d Dirs) Seccomp() string { return filepath.Join(d.Root, "seccomp") }

// bin is the directory of podrun's own binary under other names.
const bin = "bin"

// StandIn returns the path of podrun's own binary that is run instead of runc, or instead of
// another binary with the same command line, for containers that have withheld data (package
// secretenv). An empty binary means runc.
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

// Claims returns the directory of the volumes that outlive pods.
func (d Dirs) Claims() string { return filepath.Join(d.Root, "claims") }

// ClaimsMounted returns the file that records that something is mounted on Claims or, if they are not "", on the
// directory of a namespace or of a claim in it.
func ClaimsMounted(d Dirs, namespace, claim string) string {
	record := filepath.Join(d.Root, "claims-mounted")
	switch {
	case namespace == "":
		return record
	case claim == "":
		claim = ".namespace" // no claim's name begins so
	}
	return filepath.Join(record+".d", namespace, claim)
}

// Claim returns the directory of the volume of a PersistentVolumeClaim.
func (d Dirs) Claim(namespace, name string) string { return filepath.Join(d.Claims(), namespace, name) }

// RawLogs returns the directories that may be an instance's RawLog: its own or, if that does not
// exist, the one that the former version of podrun named by its attempt.
func (d Dirs) RawLogs(i pod.Instance) []string {
	legacy := d.Revision(i.UID).RawLog(i.Container, strconv.Itoa(i.Attempt))
	if i.ID == "" {
		return []string{legacy}
	}
	return []string{d.Revision(i.UID).RawLog(i.Container, i.ID), legacy}
}

// Stdin returns the FIFO of an instance's standard input, if it has one, in its RawLog.
func Stdin(rawLog string) string { return filepath.Join(rawLog, "stdin") }

// DeviceNode returns where the node of a container's device is while the container is made.
func DeviceNode(rawLog string, n int) string { return filepath.Join(rawLog, "device-"+strconv.Itoa(n)) }

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

// Events returns the event file, which has one event per line.
func (d Dirs) Events() string { return filepath.Join(d.Root, "events.jsonl") }

// Binding returns the file that records which containerd, and which namespace of it, holds the run
// directory's pods.
func (d Dirs) Binding() string { return filepath.Join(d.Run, "place") }

// RootBinding returns the file that records the run directory with which the root directory is in use.
func RootBinding(d Dirs) string { return filepath.Join(d.Root, "run-dir") }

// PodLocks returns the directory of the owner locks, which give each pod one owner process.
func (d Dirs) PodLocks() string { return filepath.Join(d.Run, "owners") }

// PodLock returns the file that the pod's owner process has locked.
func (d Dirs) PodLock(key pod.Key) string {
	return filepath.Join(d.PodLocks(), key.Namespace+"_"+key.Name)
}

// SuffixNotOwned is the suffix of the files that NotOwned returns.
const SuffixNotOwned = ".owned-by-other"

// Socket returns the Unix socket on which serve answers HTTP.
func (d Dirs) Socket() string { return filepath.Join(d.Run, "podrun.sock") }

// RestartRequests returns the directory of the requests to restart containers, which no process has accepted yet.
func RestartRequests(d Dirs) string { return filepath.Join(d.Run, "restarts") }

// JobRequests returns the directory of the requests to create Jobs from CronJobs, which serve has not answered yet.
func JobRequests(d Dirs) string { return filepath.Join(d.Run, "jobs") }

// UndoRequests returns the directory of the requests to go back from a revision, which serve has not answered yet.
func UndoRequests(d Dirs) string { return filepath.Join(d.Run, "undo") }

// Fifos returns the directory of the FIFOs of exec and attach.
func (d Dirs) Fifos() string { return filepath.Join(d.Run, "fifo") }

// Runc returns the state directory of podrun's runc, separate from that of any other user of runc.
func (d Dirs) Runc() string { return filepath.Join(d.Run, "runc") }

// CheckUID returns an error for a UID that cannot be the name of a directory: joined to a path, it
// would lead to another directory than one of its own. That is an empty UID, a dot name, or one
// with a slash or a NUL.
func CheckUID(uid pod.UID) error {
	if uid == "" || uid == "." || uid == ".." || strings.ContainsAny(string(uid), "/\x00") {
		return fmt.Errorf("pod UID %q cannot be a directory's name", uid)
	}
	return nil
}
