package workloads

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// TestJobName: the name of a Job is the value of labels of its pods, which have 63 characters at most.
func TestJobName(t *testing.T) {
	t.Parallel()
	const label = "is the value of a label of its pods: must be no more than 63 characters"
	for name, c := range map[string]struct {
		length  int
		indexed bool
		want    string
	}{
		"63 characters":     {63, false, ""},
		"64 characters":     {64, false, label},
		"a subdomain":       {253, false, label},
		"indexed":           {61, true, ""},
		"indexed, and 62":   {62, true, "will not able to create pod with invalid DNS label"},
		"indexed, too long": {64, true, label},
	} {
		j := &batchv1.Job{}
		j.Namespace, j.Name = "default", strings.Repeat("a", c.length)
		j.Spec.Parallelism, j.Spec.Completions, j.Spec.BackoffLimit = new(int32(1)), new(int32(1)), new(int32(1))
		j.Spec.CompletionMode, j.Spec.PodReplacementPolicy = new(batchv1.NonIndexedCompletion), new(batchv1.Failed)
		if c.indexed {
			j.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		}
		j.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
		errs := Job(j)
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || errs[0].Field != "metadata.name" ||
			!strings.Contains(errs[0].Detail, c.want)) {
			t.Errorf("%s: %v; want %q", name, errs, c.want)
		}
	}
}
