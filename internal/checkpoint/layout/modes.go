package layout

import "io/fs"

// The modes of podrun's directories. Only root reaches what is below a private directory by its
// path; what containers mount from there is mounted through file descriptors that root opened.
const (
	// ModePrivate is for root only. All directories have it except for those that Modes lists with
	// another mode.
	ModePrivate fs.FileMode = 0o700
	// ModePassable is for directories that the users of pods with hostUsers: false must traverse to
	// reach their root filesystems, without listing them. Nothing else that those users may access
	// is below.
	ModePassable fs.FileMode = 0o711
	// ModeLogs makes the log directories readable for others; log files have their own modes.
	ModeLogs fs.FileMode = 0o755
	// ModeVolume is the kubelet's mode of a volume directory; the directories above it are private.
	// A container may change it.
	ModeVolume fs.FileMode = 0o777
	// ModePlugins is the kubelet's mode of the directories of plugins.
	ModePlugins fs.FileMode = 0o750
	// ModeContent is for directories that podrun fills within a volume, or makes for a device plugin's mount.
	ModeContent fs.FileMode = 0o755
)

// Mode describes the mode of a directory.
type Mode struct {
	Path string
	Mode fs.FileMode
	// Shared means that others than podrun may have created the directory; then its mode is left as
	// it is. Such a directory is Own, too.
	Shared bool
	// Lazy means that the directory is created when it is first needed.
	Lazy bool
	// Entries means that the directories in it have the same mode.
	Entries bool
	// Unrelated means that the directories in it are independent of each other, so that the file
	// system may spread them over the disk.
	Unrelated bool
	// Foreign means that the directory may be on a file system of its own, which may not answer.
	Foreign bool
	// Own means that nobody but root and the user that runs podrun may be able to replace the
	// directory. Own and Shared means that groups may, because root does not trust what is there.
	Own bool
}

// Modes returns podrun's directories above the pods' data, outer directories first.
func (d Dirs) Modes() []Mode {
	return []Mode{
		{Path: d.Root, Mode: ModePrivate, Own: true},
		{Path: d.Pods(), Mode: ModePrivate, Entries: true, Unrelated: true},
		{Path: d.Claims(), Mode: ModePrivate, Lazy: true, Entries: true, Foreign: true},
		{Path: CSIVolumes(d), Mode: ModePrivate, Lazy: true},
		{Path: d.Run, Mode: ModePassable, Own: true},
		{Path: d.SandboxFiles().Dir(), Mode: ModePrivate, Lazy: true, Entries: true},
		{Path: d.Legacy().Etcs(), Mode: ModePrivate, Lazy: true, Entries: true},
		{Path: RestartRequests(d), Mode: ModePrivate},
		{Path: JobRequests(d), Mode: ModePrivate},
		{Path: UndoRequests(d), Mode: ModePrivate},
		{Path: Runs(d), Mode: ModePrivate, Lazy: true},
		{Path: d.Networks().Bridge(), Mode: ModePrivate, Lazy: true, Entries: true},
		{Path: d.ImageFiles().Views(), Mode: ModePrivate, Lazy: true},
		{Path: d.StatusFiles().Dir(), Mode: ModePrivate, Lazy: true},
		{Path: d.Log, Mode: ModeLogs, Shared: true, Own: true},
	}
}
