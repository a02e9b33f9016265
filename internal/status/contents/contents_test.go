package contents

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestContents: each volume is there with its fields and where it is mounted, and each variable with where its value
// comes from.
func TestContents(t *testing.T) {
	p := &v1.Pod{}
	p.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv", Type: new(v1.HostPathDirectory)}}},
		{Name: "raw", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}},
		{Name: "text", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: new(int32(0o440)), Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: []v1.KeyToPath{{Key: "a", Path: "b", Mode: new(int32(0o600))}}}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(1e6)), Path: "t"}},
		}}}},
		{Name: "unused", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
	}
	secret := &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "k", Optional: new(true)}
	p.Spec.InitContainers = []v1.Container{{Name: "i", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/in", ReadOnly: true}}}}
	p.Spec.Containers = []v1.Container{{
		Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/out", SubPath: "sub"}},
		VolumeDevices: []v1.VolumeDevice{{Name: "raw", DevicePath: "/dev/x"}},
		EnvFrom:       []v1.EnvFromSource{{Prefix: "P_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: secret.LocalObjectReference}}},
		Env: []v1.EnvVar{
			{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &v1.EnvVarSource{SecretKeyRef: secret}}, {Name: "C"},
			{Name: "D", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
			{Name: "E", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "F", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{Key: "k", Path: "p", VolumeName: "v", Optional: new(true)}}},
		},
	}}
	volumes := Volumes(p)
	want := []Volume{
		{"data", []Field{{"Type", "hostPath"}, {"Path", "/srv"}, {"HostPathType", "Directory"}}, []string{"i:/in (ro)", `c:/out (rw,path="sub")`}},
		{"raw", []Field{{"Type", "persistentVolumeClaim"}, {"ClaimName", "disk"}}, []string{"c:/dev/x (device)"}},
		{"text", []Field{{"Type", "projected"}, {"DefaultMode", "0440"}, {
			"Sources", "configMap: {items: {key: a, mode: 0600, path: b}, name: cm}; serviceAccountToken: {expirationSeconds: 1000000, path: t}",
		}}, nil},
		{"unused", []Field{{"Type", "emptyDir"}}, nil},
	}
	if !slices.EqualFunc(volumes, want, func(a, b Volume) bool {
		return a.Name == b.Name && slices.Equal(a.Fields, b.Fields) && slices.Equal(a.Mounts, b.Mounts)
	}) {
		t.Errorf("volumes %+v", volumes)
	}
	from, all := Environment(&p.Spec.Containers[0])
	if !slices.Equal(from, []Field{{"s", "Secret with prefix 'P_'"}}) || !slices.Equal(all, []Field{
		{"A", "1"}, {"B", "<set to the key 'k' in secret 's'> (optional)"}, {"C", `""`},
		{"D", "<set to limits.memory of container 'c' in units of 1Mi>"}, {"E", "<set to metadata.name of the pod>"},
		{"F", "<set to the key 'k' in file 'p' of volume 'v'> (optional)"},
	}) {
		t.Errorf("environment %+v %+v", from, all)
	}
}
