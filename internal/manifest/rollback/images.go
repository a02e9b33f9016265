package rollback

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload/revisions"
)

// addImages adds the digests of the images that the containers of a pod run, by the references that its manifest has. A
// reference with a digest needs none.
func addImages(digests map[string]string, p *v1.Pod) {
	for _, statuses := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range statuses {
			c := pod.FindContainer(p, s.Name)
			_, digest, known := strings.Cut(s.ImageID, "@")
			if c != nil && known && !strings.Contains(c.Image, "@") {
				digests[c.Image] = digest
			}
		}
	}
}

// pinImages makes the containers of p run images by their digests, if those are known. Such an image is not pulled if it
// is present, since a digest cannot refer to another one.
func pinImages(p *v1.Pod, digests map[string]string) {
	for _, c := range pod.AllContainers(p) {
		digest := digests[c.Image]
		if digest == "" {
			continue
		}
		c.Image = revisions.Pinned(c.Image, digest)
		if c.ImagePullPolicy == v1.PullAlways {
			c.ImagePullPolicy = v1.PullIfNotPresent
		}
	}
}
