package agent

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// found is what probes had found of the instances that the status files tell of, by instance ID. Of what ran
// when podrun ended, that is the best that is known until it is asked again; what cannot be read is asked.
func found(dirs layout.Dirs, log *slog.Logger) map[string]pod.Probed {
	keys, err := status.Keys(dirs)
	if err != nil {
		log.Warn("it is not known what had started up", "why", err)
	}
	known := map[string]pod.Probed{}
	for _, key := range keys {
		var p v1.Pod
		data, err := os.ReadFile(dirs.Status(key))
		if err == nil {
			err = json.Unmarshal(data, &p)
		}
		if err != nil {
			log.Warn("it is not known what had started up", "pod", key.String(), "why", err)
			continue
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if _, id, named := strings.Cut(c.ContainerID, "://"); named && c.State.Running != nil && c.Started != nil {
				known[id] = pod.Probed{Started: c.Started, Ready: &c.Ready, Since: readySince(&p)}
			}
		}
	}
	return known
}

// readySince is when the pod's containers became ready, or ceased to be.
func readySince(p *v1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.ContainersReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
