// Package legacy reads the files and labels in which the former version of podrun (the release
// before checkpoints) kept the state of pods, as checkpoints of this version, and removes them.
//
// It saves no checkpoint and does not decide when to convert: package agent/connection does both.
// It may be removed after the next release, with everything else that is for the former version.
//
// Begin reading at Importer and Legacy.
package legacy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/sandbox"
	"podrun.io/podrun/internal/sys"
)

// The labels in which the former version of podrun kept the state of an instance.
const (
	labelBackoff           = "podrun.io/backoff"
	labelBoot              = "podrun.io/boot"
	labelSandbox           = "podrun.io/sandbox"
	labelGrace             = "podrun.io/grace"
	labelImage             = "podrun.io/image"
	labelPreStop           = "podrun.io/pre-stop"
	labelResources         = "podrun.io/resources"
	labelRestartGeneration = "podrun.io/round"
	labelSidecar           = "podrun.io/sidecar"
	labelStopSignal        = "podrun.io/stop-signal"
	labelGeneration        = "podrun.io/generation"
	labelExitCode          = "podrun.io/exit-code"
	labelFinishedAt        = "podrun.io/finished-at"
	labelReason            = "podrun.io/reason"
	labelMessage           = "podrun.io/message"
	labelMessageMore       = "podrun.io/message-2"
)

// manifest is the content of a revision's pod.json of the former version.
type manifest struct {
	Owner string  `json:"owner"`
	Pod   *v1.Pod `json:"pod"`
	// savedAt is the modification time of the file.
	savedAt time.Time
}

// Sandboxes has the sandboxes of the former version.
type Sandboxes interface {
	Legacy() ([]sandbox.Legacy, error)
	// ForgetLegacy removes the former version's record of a sandbox.
	ForgetLegacy(id string) error
}

// Options configure an Importer. All are required.
type Options struct {
	Client    *daemon.Client
	Dirs      layout.Dirs
	Sandboxes Sandboxes
	Log       *slog.Logger
}

// Importer reads what the former version of podrun kept. Its methods may be called concurrently.
type Importer struct {
	client    *daemon.Client
	dirs      layout.Dirs
	sandboxes Sandboxes
	log       *slog.Logger
}

// New returns an Importer.
func New(o Options) *Importer { return &Importer{o.Client, o.Dirs, o.Sandboxes, o.Log} }

// Legacy returns checkpoints for the revisions that the former version of podrun runs or has run,
// from that version's files and labels. The caller saves them and then calls ForgetLegacy for each.
// If the caller was interrupted between the two, the next call of Legacy completes the removal.
func (im *Importer) Legacy(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	manifests, err := im.manifests()
	if err != nil || len(manifests) == 0 {
		return nil, err
	}
	boot, err := sys.BootID()
	if err != nil {
		return nil, err
	}
	sandboxes, err := im.sandboxes.Legacy()
	if err != nil {
		return nil, err
	}
	found, err := im.client.ContainerService().List(im.client.Context(ctx))
	if err != nil {
		return nil, daemon.Mapped("listing containers", err)
	}
	replaced := superseded(found)
	out := make([]checkpoint.Checkpoint, 0, len(manifests))
	newest := map[pod.Key]int64{}
	for _, m := range manifests {
		uid, key := m.Pod.UID, pod.KeyOf(m.Pod)
		newest[key]++
		c := checkpoint.Checkpoint{
			Version: checkpoint.Version, Sequence: newest[key], Owner: m.Owner, Pod: m.Pod,
			Evicted: im.evicted(uid),
		}
		for _, s := range sandboxes {
			if s.Sandbox.UID == uid {
				c.Sandboxes = append(c.Sandboxes, s.Sandbox)
			}
		}
		remembered := im.remembered(uid)
		for _, container := range found {
			labels := container.Labels
			if instance.Ours(container) && pod.UID(labels[instance.LabelPodUID]) == uid && !replaced[container.ID] {
				c.Instances = append(c.Instances, im.instance(container, remembered, boot))
			}
		}
		for _, i := range remembered {
			if i.State != pod.Created && c.Instance(i.ID) == nil {
				c.Instances = append(c.Instances, i)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// ForgetLegacy removes the former version's data of the revision, which is in the revision's
// checkpoint now.
func (im *Importer) ForgetLegacy(uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	sandboxes, err := im.sandboxes.Legacy()
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		if s.Sandbox.UID != uid {
			continue
		}
		if err := im.sandboxes.ForgetLegacy(s.Sandbox.ID); err != nil {
			return err
		}
	}
	// The manifest is removed last: as long as it exists, the rest is searched for.
	dirs := im.dirs.Legacy()
	for _, path := range []string{
		dirs.StartedOf(uid), im.evictedFile(uid), dirs.Instances(uid), dirs.Manifest(uid),
	} {
		if err := os.RemoveAll(path); err != nil { // trusted: podrun's alone
			return fmt.Errorf("removing what a former version kept of revision %s: %w", uid, err)
		}
	}
	return nil
}

// manifests returns the revisions that have a manifest but no checkpoint, oldest first. It
// completes ForgetLegacy for those that have both, and it logs and skips a manifest that cannot be
// read.
func (im *Importer) manifests() ([]manifest, error) {
	paths, err := filepath.Glob(im.dirs.Legacy().Manifest("*"))
	if err != nil {
		return nil, err
	}
	var out []manifest
	for _, path := range paths {
		uid := pod.UID(filepath.Base(filepath.Dir(path)))
		_, err := os.Lstat(im.dirs.Revision(uid).Checkpoint())
		if err == nil {
			err = im.ForgetLegacy(uid)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return nil, err
			}
			continue
		}
		m, err := readManifest(path)
		if err == nil && m.Pod.UID != uid {
			err = fmt.Errorf("the pod in it has the UID %s", m.Pod.UID)
		}
		if err != nil {
			im.log.Warn("manifest of a former version of podrun cannot be read", "path", path, "err", err)
			continue
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b manifest) int {
		return cmp.Or(a.savedAt.Compare(b.savedAt), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return out, nil
}

func readManifest(path string) (m manifest, err error) {
	info, err := os.Stat(path) // trusted: a directory of podrun's own
	if err != nil {
		return m, err
	}
	data, err := os.ReadFile(path) // trusted: a directory of podrun's own
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, err
	}
	if m.Pod == nil || m.Pod.Name == "" {
		return m, errors.New("the file contains no pod")
	}
	m.savedAt = info.ModTime()
	return m, nil
}

// evictedFile is the file with the reason for which a revision was evicted.
func (im *Importer) evictedFile(uid pod.UID) string {
	return filepath.Join(im.dirs.Pod(uid), "evicted")
}

// evicted returns the reason for which the revision was evicted, "" if it was not.
func (im *Importer) evicted(uid pod.UID) string {
	text, err := os.ReadFile(im.evictedFile(uid)) // trusted: a directory of podrun's own
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		im.log.Warn("eviction reason of a former version of podrun cannot be read", "uid", uid, "err", err)
	}
	return string(text)
}

// remembered returns the newest instances of the revision's containers that the former version
// recorded.
func (im *Importer) remembered(uid pod.UID) []pod.Container {
	data, err := os.ReadFile(im.dirs.Legacy().Instances(uid)) // trusted: a directory of podrun's own
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var newest []pod.Container
	if err == nil {
		err = json.Unmarshal(data, &newest)
	}
	if err != nil {
		im.log.Warn("instances of a former version of podrun cannot be read; restart counts may begin again at 0",
			"uid", uid, "err", err)
		return nil
	}
	for i := range newest {
		newest[i].UID = uid
	}
	return newest
}

// instance returns the instance of a container of the former version, in the state that a
// checkpoint gives it.
func (im *Importer) instance(c containers.Container, remembered []pod.Container, boot string) pod.Container {
	l := c.Labels
	backoff, _ := strconv.Atoi(l[labelBackoff])            // absent: 0
	sidecar, _ := strconv.Atoi(l[labelSidecar])            // absent: 0
	restarts, _ := strconv.Atoi(l[labelRestartGeneration]) // absent: 0
	grace, _ := time.ParseDuration(l[labelGrace])
	out := instance.Identity(c)
	out.SandboxID, out.Backoff, out.RestartGeneration, out.Boot, out.Grace =
		l[labelSandbox], backoff, restarts, l[labelBoot], grace
	out.Image, out.ImageID = l[labelImage], l[instance.LabelImageID]
	out.Sidecar, out.Resources = sidecar, l[labelResources]
	out.PreStop, out.StopSignal = l[labelPreStop] != "", unpacked.SignalName(l[labelStopSignal])
	out.State, out.StartedAt = pod.Created, c.CreatedAt
	mark, err := os.ReadFile(im.dirs.Legacy().Started(out.UID, c.ID)) // trusted: a directory of podrun's own
	marked := bytes.HasPrefix(mark, []byte(boot+"\n")) || err != nil && !errors.Is(err, fs.ErrNotExist)
	if marked || hasRun(out, remembered, boot) {
		out.State, out.Notes = pod.Running, notesOf(mark)
	}
	code, err := strconv.Atoi(l[labelExitCode])
	at, unknown := time.Parse(time.RFC3339Nano, l[labelFinishedAt])
	if err == nil && unknown == nil {
		out.State, out.ExitCode, out.FinishedAt, out.Reason = pod.Exited, code, at, l[labelReason]
		out.Message, out.Notes = l[labelMessage]+l[labelMessageMore], notesOf(mark)
	}
	return out
}

// hasRun reports whether an instance without a mark may have run: in an earlier boot, or according
// to the recorded instances.
func hasRun(c pod.Container, remembered []pod.Container, boot string) bool {
	return c.Boot != boot || slices.ContainsFunc(remembered, func(n pod.Container) bool {
		return n.ID == c.ID && n.State != pod.Created || n.Name == c.Name && n.Attempt > c.Attempt
	})
}

// notesOf returns the notes in the last complete line of an instance's mark.
func notesOf(mark []byte) (n pod.Notes) {
	for line := range bytes.Lines(mark) {
		var next pod.Notes
		if bytes.HasSuffix(line, []byte{'\n'}) && json.Unmarshal(line, &next) == nil {
			n = next
		}
	}
	return n
}

// superseded returns the IDs of interrupted starts that were followed by another start of the same
// instance. The former version derived an ID from the identity of the instance and the number of
// its interrupted starts.
func superseded(found []containers.Container) map[string]bool {
	const most = 1000
	out := map[string]bool{}
	for _, c := range found {
		last, _ := strconv.Atoi(c.Labels[labelGeneration]) // absent: 0
		key, l := instance.KeyOf(c.Labels), c.Labels
		for n := range min(last, most) {
			parts := []string{
				key.Namespace, key.Name, l[instance.LabelPodUID], l[instance.LabelContainer],
				l[instance.LabelAttempt], strconv.Itoa(n),
			}
			sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
			out[hex.EncodeToString(sum[:16])] = true
		}
	}
	return out
}
