package manifest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func TestCircles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// pods are given as name=after,after.
		pods string
		want string
	}{
		{"none", "a= b=a c=a,b", ""},
		{"a diamond is none", "a=b,c b=d c=d d=", ""},
		{"nor is one that is not there", "a=nobody", ""},
		{"itself", "a=a", "default/a-n after default/a-n"},
		{"two", "a=b b=a c=a", "default/a-n after default/b-n after default/a-n"},
		{"behind others", "a=b b=c c=d d=b", "default/b-n after default/c-n after default/d-n after default/b-n"},
		{"two cycles", "a=b b=a x=y y=x", "default/a-n after default/b-n after default/a-n; default/x-n after default/y-n after default/x-n"},
		{"another namespace's", "a=other/a", ""},
	} {
		pods := map[pod.Key]*v1.Pod{}
		for _, one := range strings.Fields(tt.pods) {
			name, after, _ := strings.Cut(one, "=")
			p := &v1.Pod{}
			p.Namespace, p.Name, p.Spec.NodeName = "default", name+"-n", "n"
			if after != "" {
				p.Annotations = map[string]string{pod.AnnotationAfter: strings.ReplaceAll(after, ",", " , ")}
			}
			pods[pod.KeyOf(p)] = p
		}
		var got []string
		for _, problem := range cycles(pods) {
			_, way, _ := strings.Cut(problem.Err.Error(), "pods wait for each other: ")
			got = append(got, way)
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
