package layout

import (
	"path/filepath"
	"strconv"

	"podrun.io/podrun/internal/pod"
)

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

// Revision is the directory of a pod revision's data.
type Revision string

// Revision returns the directory of a revision's data.
func (d Dirs) Revision(uid pod.UID) Revision { return Revision(d.Pod(uid)) }

// Checkpoint returns the checkpoint file of a revision, in JSON.
func (r Revision) Checkpoint() string { return filepath.Join(string(r), "checkpoint.json") }

// Volumes returns the directory of a revision's own volumes.
func (r Revision) Volumes() string { return filepath.Join(string(r), "volumes") }

// Volume returns the directory of one of a revision's own volumes.
func (r Revision) Volume(kind, name string) string {
	return filepath.Join(r.Volumes(), kind, name)
}

// Withheld returns the directory, in memory, of what a revision's processes get but no disk may
// contain, such as Secret values in environment variables.
func (r Revision) Withheld() string { return filepath.Join(string(r), "withheld") }

// SubPaths returns the directory of the subPath mounts of a revision's containers.
func (r Revision) SubPaths() string { return filepath.Join(string(r), "volume-subpaths") }

// SubPath returns the path at which the subPath of a container's volume mount, given by its index,
// is bound.
func (r Revision) SubPath(volume, container string, mount int) string {
	return filepath.Join(r.SubPaths(), volume, container, strconv.Itoa(mount))
}

// EmptyDir returns the directory of an emptyDir volume's content.
func (r Revision) EmptyDir(volume string) string { return r.Volume(KindEmptyDir, volume) }

// Etc returns the directory of the files that podrun provides in a pod's containers, such as
// /etc/hosts. Containers can write to them, so they are stored with the volumes and not in the run
// directory, whose memory all pods share.
func (r Revision) Etc() string { return filepath.Join(string(r), "etc") }

// RawLog returns the directory of the raw output of the instance with the ID: stdout.raw,
// stderr.raw and how much of both has been converted to CRI format. An ID is used once, so no other
// instance has the same directory.
func (r Revision) RawLog(container, id string) string {
	return filepath.Join(string(r), "log."+container+"."+id)
}
