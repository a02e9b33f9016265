package containerd

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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/sys"
)

// The labels in which the former version of podrun kept the state of an instance.
const (
	legacyBackoff           = "podrun.io/backoff"
	legacyBoot              = "podrun.io/boot"
	legacySandbox           = "podrun.io/sandbox"
	legacyGrace             = "podrun.io/grace"
	legacyImage             = "podrun.io/image"
	legacyPreStop           = "podrun.io/pre-stop"
	legacyResources         = "podrun.io/resources"
	legacyRestartGeneration = "podrun.io/round"
	legacySidecar           = "podrun.io/sidecar"
	legacyStopSignal        = "podrun.io/stop-signal"
	legacyGeneration        = "podrun.io/generation"
	legacyExitCode          = "podrun.io/exit-code"
	legacyFinishedAt        = "podrun.io/finished-at"
	legacyReason            = "podrun.io/reason"
	legacyMessage           = "podrun.io/message"
	legacyMessageMore       = "podrun.io/message-2"
)

// legacyManifest is the content of a revision's pod.json of the former version.
type legacyManifest struct {
	Owner string  `json:"owner"`
	Pod   *v1.Pod `json:"pod"`
	// savedAt is the modification time of the file.
	savedAt time.Time
}

// Legacy returns checkpoints for the revisions that the former version of podrun runs or has run,
// from that version's files and labels. The caller saves them and then calls ForgetLegacy for each.
// If the caller was interrupted between the two, the next call of Legacy completes the removal.
func (r *Runtime) Legacy(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	manifests, err := r.legacyManifests()
	if err != nil || len(manifests) == 0 {
		return nil, err
	}
	boot, err := sys.BootID()
	if err != nil {
		return nil, err
	}
	sandboxes, err := r.Sandboxes.Legacy()
	if err != nil {
		return nil, err
	}
	found, err := r.client.ContainerService().List(r.client.Context(ctx))
	if err != nil {
		return nil, daemon.Mapped("listing containers", err)
	}
	superseded := legacySuperseded(found)
	out := make([]checkpoint.Checkpoint, 0, len(manifests))
	newest := map[pod.Key]int64{}
	for _, m := range manifests {
		uid, key := m.Pod.UID, pod.KeyOf(m.Pod)
		newest[key]++
		c := checkpoint.Checkpoint{
			Version: checkpoint.Version, Sequence: newest[key], Owner: m.Owner, Pod: m.Pod,
			Evicted: r.legacyEvicted(uid),
		}
		for _, s := range sandboxes {
			if s.Sandbox.UID == uid {
				c.Sandboxes = append(c.Sandboxes, s.Sandbox)
			}
		}
		remembered := r.legacyRemembered(uid)
		for _, container := range found {
			if instance.Ours(container.Labels) && pod.UID(container.Labels[instance.LabelPodUID]) == uid && !superseded[container.ID] {
				c.Instances = append(c.Instances, r.legacyInstance(container, remembered, boot))
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
func (r *Runtime) ForgetLegacy(uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	sandboxes, err := r.Sandboxes.Legacy()
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		if s.Sandbox.UID != uid {
			continue
		}
		if err := r.Sandboxes.ForgetLegacy(s.Sandbox.ID); err != nil {
			return err
		}
	}
	// The manifest is removed last: as long as it exists, the rest is searched for.
	for _, path := range []string{
		r.Dirs.StartedOf(uid), r.legacyEvictedFile(uid), r.Dirs.Instances(uid), r.Dirs.Manifest(uid),
	} {
		if err := os.RemoveAll(path); err != nil { // trusted: podrun's alone
			return fmt.Errorf("removing what a former version kept of revision %s: %w", uid, err)
		}
	}
	return nil
}

// legacyManifests returns the revisions that have a manifest but no checkpoint, oldest first. It
// completes ForgetLegacy for those that have both, and it logs and skips a manifest that cannot be
// read.
func (r *Runtime) legacyManifests() ([]legacyManifest, error) {
	paths, err := filepath.Glob(r.Dirs.Manifest("*"))
	if err != nil {
		return nil, err
	}
	var out []legacyManifest
	for _, path := range paths {
		uid := pod.UID(filepath.Base(filepath.Dir(path)))
		_, err := os.Lstat(r.Dirs.Checkpoint(uid))
		if err == nil {
			err = r.ForgetLegacy(uid)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return nil, err
			}
			continue
		}
		m, err := readLegacyManifest(path)
		if err == nil && m.Pod.UID != uid {
			err = fmt.Errorf("the pod in it has the UID %s", m.Pod.UID)
		}
		if err != nil {
			r.Log.Warn("manifest of a former version of podrun cannot be read", "path", path, "err", err)
			continue
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b legacyManifest) int {
		return cmp.Or(a.savedAt.Compare(b.savedAt), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return out, nil
}

func readLegacyManifest(path string) (m legacyManifest, err error) {
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

// legacyEvictedFile is the file with the reason for which a revision was evicted.
func (r *Runtime) legacyEvictedFile(uid pod.UID) string {
	return filepath.Join(r.Dirs.Pod(uid), "evicted")
}

// legacyEvicted returns the reason for which the revision was evicted, "" if it was not.
func (r *Runtime) legacyEvicted(uid pod.UID) string {
	text, err := os.ReadFile(r.legacyEvictedFile(uid)) // trusted: a directory of podrun's own
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Log.Warn("eviction reason of a former version of podrun cannot be read", "uid", uid, "err", err)
	}
	return string(text)
}

// legacyRemembered returns the newest instances of the revision's containers that the former
// version recorded.
func (r *Runtime) legacyRemembered(uid pod.UID) []pod.Container {
	data, err := os.ReadFile(r.Dirs.Instances(uid)) // trusted: a directory of podrun's own
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var newest []pod.Container
	if err == nil {
		err = json.Unmarshal(data, &newest)
	}
	if err != nil {
		r.Log.Warn("instances of a former version of podrun cannot be read; restart counts may begin again at 0",
			"uid", uid, "err", err)
		return nil
	}
	for i := range newest {
		newest[i].UID = uid
	}
	return newest
}

// legacyInstance returns the instance of a container of the former version, in the state that a
// checkpoint gives it.
func (r *Runtime) legacyInstance(c containers.Container, remembered []pod.Container, boot string) pod.Container {
	l := c.Labels
	backoff, _ := strconv.Atoi(l[legacyBackoff])         // absent: 0
	sidecar, _ := strconv.Atoi(l[legacySidecar])         // absent: 0
	round, _ := strconv.Atoi(l[legacyRestartGeneration]) // absent: 0
	grace, _ := time.ParseDuration(l[legacyGrace])
	out := instance.Identity(c)
	out.SandboxID, out.Backoff, out.RestartGeneration, out.Boot, out.Grace =
		l[legacySandbox], backoff, round, l[legacyBoot], grace
	out.Image, out.ImageID, out.Sidecar, out.Resources = l[legacyImage], l[instance.LabelImageID], sidecar, l[legacyResources]
	out.PreStop, out.StopSignal = l[legacyPreStop] != "", images.SignalName(l[legacyStopSignal])
	out.State, out.StartedAt = pod.Created, c.CreatedAt
	mark, err := os.ReadFile(r.Dirs.Started(out.UID, c.ID)) // trusted: a directory of podrun's own
	marked := bytes.HasPrefix(mark, []byte(boot+"\n")) || err != nil && !errors.Is(err, fs.ErrNotExist)
	if marked || legacyRan(out, remembered, boot) {
		out.State, out.Notes = pod.Running, legacyNotes(mark)
	}
	code, err := strconv.Atoi(l[legacyExitCode])
	at, unknown := time.Parse(time.RFC3339Nano, l[legacyFinishedAt])
	if err == nil && unknown == nil {
		out.State, out.ExitCode, out.FinishedAt, out.Reason = pod.Exited, code, at, l[legacyReason]
		out.Message, out.Notes = l[legacyMessage]+l[legacyMessageMore], legacyNotes(mark)
	}
	return out
}

// legacyRan reports whether an instance without a mark may have run: in an earlier boot, or
// according to the recorded instances.
func legacyRan(c pod.Container, remembered []pod.Container, boot string) bool {
	return c.Boot != boot || slices.ContainsFunc(remembered, func(n pod.Container) bool {
		return n.ID == c.ID && n.State != pod.Created || n.Name == c.Name && n.Attempt > c.Attempt
	})
}

// legacyNotes returns the notes in the last complete line of an instance's mark.
func legacyNotes(mark []byte) (n pod.Notes) {
	for line := range bytes.Lines(mark) {
		var next pod.Notes
		if bytes.HasSuffix(line, []byte{'\n'}) && json.Unmarshal(line, &next) == nil {
			n = next
		}
	}
	return n
}

// legacySuperseded returns the IDs of interrupted starts that were followed by another start of the
// same instance. The former version derived an ID from the identity of the instance and the number
// of its interrupted starts.
func legacySuperseded(found []containers.Container) map[string]bool {
	const most = 1000
	out := map[string]bool{}
	for _, c := range found {
		last, _ := strconv.Atoi(c.Labels[legacyGeneration]) // absent: 0
		key, l := instance.KeyOf(c.Labels), c.Labels
		for n := range min(last, most) {
			parts := []string{
				key.Namespace, key.Name, l[instance.LabelPodUID], l[instance.LabelContainer], l[instance.LabelAttempt], strconv.Itoa(n),
			}
			sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
			out[hex.EncodeToString(sum[:16])] = true
		}
	}
	return out
}
