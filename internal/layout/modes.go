package layout

import "io/fs"

// The modes of podrun's directories. Whatever is below a private one nobody but root gets to by its path: what is mounted
// in containers from there comes in by descriptors of root's.
const (
	// ModePrivate is for root alone. All directories have it but those that Modes names.
	ModePrivate fs.FileMode = 0o700
	// ModePassable is for directories that users of pods with hostUsers: false pass on the way to their root file
	// systems, without seeing what else is there. Nothing else that they may use is below.
	ModePassable fs.FileMode = 0o711
	// ModeLogs lets others find logs, which have modes of their own.
	ModeLogs fs.FileMode = 0o755
	// ModeVolume is a volume's own, as the kubelet's; the way to it is private. A container may change it.
	ModeVolume fs.FileMode = 0o777
	// ModeContent is for directories that podrun fills within a volume.
	ModeContent fs.FileMode = 0o755
)

// Mode is that of a directory.
type Mode struct {
	Path string
	Mode fs.FileMode
	// Shared: others than podrun may have made the directory; then it is left as it is.
	Shared bool
	// Lazy: it is made when it is needed first.
	Lazy bool
	// Entries: the directories in it have the same mode.
	Entries bool
	// Unrelated: the directories in it have nothing to do with each other, and the file system may spread them.
	Unrelated bool
	// Own: nobody but root and podrun's user may own it.
	Own bool
}

// Modes are podrun's directories on the way to what pods have, the outer ones first.
func (d Dirs) Modes() []Mode {
	return []Mode{
		{Path: d.Root, Mode: ModePrivate, Own: true},
		{Path: d.Pods(), Mode: ModePrivate, Entries: true, Unrelated: true},
		{Path: d.Claims(), Mode: ModePrivate, Lazy: true, Entries: true},
		{Path: d.Run, Mode: ModePassable, Own: true},
		{Path: d.Sandboxes(), Mode: ModePrivate, Lazy: true, Entries: true},
		{Path: d.LegacyEtcs(), Mode: ModePrivate, Lazy: true, Entries: true},
		{Path: d.Network(), Mode: ModePrivate, Lazy: true, Entries: true},
		{Path: d.ImageViews(), Mode: ModePrivate, Lazy: true},
		{Path: d.Statuses(), Mode: ModePrivate, Lazy: true},
		{Path: d.Log, Mode: ModeLogs, Shared: true},
	}
}
