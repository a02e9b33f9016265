package validate

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestManyFiles: more items than podrun writes into a volume are refused before an object exists.
func TestManyFiles(t *testing.T) {
	items := func(n int) []v1.KeyToPath {
		out := make([]v1.KeyToPath, n)
		for i := range out {
			out[i] = v1.KeyToPath{Key: "a", Path: "a"}
		}
		return out
	}
	sources := []v1.VolumeProjection{
		{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Items: items(4000)}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}},
	}
	last := v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Items: items(96)}}
	for name, c := range map[string]struct {
		source v1.VolumeSource
		want   string
	}{
		"a Secret":  {v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Items: items(4096)}}, ""},
		"too large": {v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Items: items(4097)}}, "v.secret.items: Too many: 4097: must have at most 4096 items"},
		"a ConfigMap": {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Items: items(4097)}},
			"v.configMap.items: Too many: 4097: must have at most 4096 items"},
		"several": {v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: append(sources, last)}}, "v.projected.sources: Too many: 4097: must have at most 4096 items"},
	} {
		got := ""
		if errs := validateCount(&c.source, field.NewPath("v")); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestManyContainers: a pod has no more containers than podrun can keep an eye on, and that is one error.
func TestManyContainers(t *testing.T) {
	of := func(containers, inits int) *v1.PodSpec {
		s := &v1.PodSpec{}
		for i := range containers {
			s.Containers = append(s.Containers, v1.Container{Name: fmt.Sprint("c", i), Image: "app:1"})
		}
		for i := range inits {
			s.InitContainers = append(s.InitContainers, v1.Container{Name: fmt.Sprint("i", i), Image: "app:1"})
		}
		return s
	}
	errors := func(s *v1.PodSpec) field.ErrorList { return validateContainers(s, nil, field.NewPath("spec")) }
	tooMany := func(e *field.Error) bool { return e.Type == field.ErrorTypeTooMany }
	if got := errors(of(600, 400)); slices.ContainsFunc(got, tooMany) {
		t.Error(got)
	}
	if got := errors(of(600, 401)); len(got) != 1 || got[0].Error() != "spec.containers: Too many: 1001: must have at most 1000 items" {
		t.Error(got)
	}
}
