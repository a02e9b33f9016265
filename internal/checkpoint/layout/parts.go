package layout

import (
	"path/filepath"

	"podrun.io/podrun/internal/pod"
)

// SandboxFiles has the paths of what belongs to sandboxes.
type SandboxFiles struct{ dirs Dirs }

// SandboxFiles returns the paths of what belongs to sandboxes.
func (d Dirs) SandboxFiles() SandboxFiles { return SandboxFiles{d} }

// Dir returns the directory of the pinned namespaces of all sandboxes.
func (f SandboxFiles) Dir() string { return filepath.Join(f.dirs.Run, "sandboxes") }

// Devices returns the directory that has a file for each sandbox that uses devices of the node's
// configuration.
func (f SandboxFiles) Devices() string { return filepath.Join(f.dirs.Run, "devices") }

// Plugins returns the file that remembers the sockets of device plugins.
func (f SandboxFiles) Plugins() string { return filepath.Join(f.dirs.Run, "device-plugins.json") }

// CSIDrivers returns the file that lists the CSI drivers of serve, for commands.
func CSIDrivers(d Dirs) string { return filepath.Join(d.Run, "csi-drivers.json") }

// RefusedPlugins returns the file that lists the plugins that cannot be registered, for commands.
func RefusedPlugins(d Dirs) string { return filepath.Join(d.Run, "refused-plugins.json") }

// CSIVolumes returns the directory that has a file for each volume for which a CSI driver has been called. It survives
// a reboot: drivers may keep something of a volume over it.
func CSIVolumes(d Dirs) string { return filepath.Join(d.Root, "csi") }

// CSIClaims returns the directory that has a file for each claim whose volume a CSI driver has made.
func CSIClaims(d Dirs) string { return filepath.Join(CSIVolumes(d), "claims") }

// ClaimBindings returns the directory that has a file for each claim that had a PersistentVolume of the manifests.
func ClaimBindings(d Dirs) string { return filepath.Join(CSIVolumes(d), "bindings") }

// Users returns the path at which a sandbox's user namespace is pinned, if it has one.
func (f SandboxFiles) Users(id string) string { return filepath.Join(f.Dir(), id, "user") }

// Shims returns the directory of the directories of all shims that podrun started.
func (f SandboxFiles) Shims() string { return filepath.Join(f.dirs.Run, "shims") }

// Shim returns the directory of the shim that podrun started for a sandbox.
func (f SandboxFiles) Shim(id string) string { return filepath.Join(f.Shims(), id) }

// StatusFiles has the paths of the files that tell other processes what serve and once observe.
type StatusFiles struct{ dirs Dirs }

// StatusFiles returns the paths of the status files.
func (d Dirs) StatusFiles() StatusFiles { return StatusFiles{d} }

// Dir returns the directory of the status files.
func (f StatusFiles) Dir() string { return filepath.Join(f.dirs.Run, "status") }

// Pod returns a pod's status file.
func (f StatusFiles) Pod(key pod.Key) string {
	return filepath.Join(f.Dir(), key.Namespace+"_"+key.Name+".json")
}

// NotOwned returns the file with which serve shows that another process owns a pod.
func (f StatusFiles) NotOwned(key pod.Key) string {
	return filepath.Join(f.Dir(), key.Namespace+"_"+key.Name+SuffixNotOwned)
}

// ManifestProblems returns the file that lists the current problems of manifests.
func (f StatusFiles) ManifestProblems() string {
	return filepath.Join(f.dirs.Run, "manifest-problems.json")
}

// Serve returns the file with the settings of the serve that runs, or ran last.
func (f StatusFiles) Serve() string { return filepath.Join(f.dirs.Run, "serve.json") }

// Workloads returns the file with the workloads of serve, for commands.
func (f StatusFiles) Workloads() string { return filepath.Join(f.dirs.Run, "workloads.json") }

// Seen returns the file that records until when statuses were kept up to date.
func (f StatusFiles) Seen() string { return filepath.Join(f.dirs.Run, "seen") }

// ImageFiles has the paths of what podrun keeps about images beside containerd.
type ImageFiles struct{ dirs Dirs }

// ImageFiles returns the paths of what podrun keeps about images.
func (d Dirs) ImageFiles() ImageFiles { return ImageFiles{d} }

// Archives returns the directory of the image archives that are loaded when podrun starts.
func (f ImageFiles) Archives() string { return filepath.Join(f.dirs.Root, "images") }

// Loaded returns the file that records which archives have been loaded, in JSON.
func (f ImageFiles) Loaded() string { return filepath.Join(f.dirs.Root, "loaded-images.json") }

// Used returns the file that records when images were last used, in JSON.
func (f ImageFiles) Used() string { return filepath.Join(f.dirs.Root, "used-images.json") }

// Fetching returns the directory of the locks of pulls in progress.
func (f ImageFiles) Fetching() string { return filepath.Join(f.dirs.Run, "fetching") }

// Views returns the directory in which podrun mounts images for a moment to read their files.
func (f ImageFiles) Views() string { return filepath.Join(f.dirs.Run, "image-views") }

// Networks has the paths of the networks' records.
type Networks struct{ dirs Dirs }

// Networks returns the paths of the networks' records.
func (d Dirs) Networks() Networks { return Networks{d} }

// Bridge returns the directory of the bridge's address records.
func (n Networks) Bridge() string { return filepath.Join(n.dirs.Run, "network") }

// CNI returns the directory of the calls made to CNI plugins. It survives a reboot, as the plugins'
// own records do.
func (n Networks) CNI() string { return filepath.Join(n.dirs.Root, "cni") }

// CNICache returns the directory in which the CNI library caches the plugins' results.
func (n Networks) CNICache() string { return filepath.Join(n.CNI(), "cache") }

// Embedded has the paths of podrun's own containerd.
type Embedded struct{ dirs Dirs }

// Embedded returns the paths of podrun's own containerd.
func (d Dirs) Embedded() Embedded { return Embedded{d} }

// Data returns the persistent directory of the embedded containerd.
func (e Embedded) Data() string { return filepath.Join(e.dirs.Root, "containerd") }

// State returns the directory of the embedded containerd's socket and runtime state.
func (e Embedded) State() string { return filepath.Join(e.dirs.Run, "containerd") }

// Socket returns the socket of the embedded containerd.
func (e Embedded) Socket() string { return filepath.Join(e.State(), "containerd.sock") }

// Shim returns the runtime shim: podrun's own binary under the shim's name.
func (e Embedded) Shim() string { return filepath.Join(e.dirs.Root, bin, "containerd-shim-runc-v2") }

// Legacy has the paths that only the former version of podrun wrote.
type Legacy struct{ dirs Dirs }

// Legacy returns the paths of the former version.
func (d Dirs) Legacy() Legacy { return Legacy{d} }

// Manifest returns the file in which the former version stored the pod that a revision runs, in
// JSON.
func (l Legacy) Manifest(uid pod.UID) string { return filepath.Join(l.dirs.Pod(uid), "pod.json") }

// Instances returns the file in which the former version stored the newest instance of each
// container of a revision, in JSON.
func (l Legacy) Instances(uid pod.UID) string {
	return filepath.Join(l.dirs.Pod(uid), "instances.json")
}

// Etcs returns the directory in which the former version kept the Etc directories of all pods.
func (l Legacy) Etcs() string { return filepath.Join(l.dirs.Run, "etc") }

// Etc returns the Etc directory of a pod in the former version. Containers that it started still
// use that directory.
func (l Legacy) Etc(uid pod.UID) string { return filepath.Join(l.Etcs(), string(uid)) }

// StartedOf returns the directory of the files in which the former version kept the notes of a
// revision's instances.
func (l Legacy) StartedOf(uid pod.UID) string { return filepath.Join(l.dirs.Pod(uid), "started") }

// Started returns the file from which the former version knew that an instance's process may have
// run.
func (l Legacy) Started(uid pod.UID, id string) string { return filepath.Join(l.StartedOf(uid), id) }
