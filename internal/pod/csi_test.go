package pod_test

import (
	"reflect"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"podrun.io/podrun/internal/pod"
)

// TestCSIDriver: the type has the fields of Kubernetes' own.
func TestCSIDriver(t *testing.T) {
	t.Parallel()
	same(t, reflect.TypeFor[pod.CSIDriver](), reflect.TypeFor[storagev1.CSIDriver]())
}

func same(t *testing.T, ours, theirs reflect.Type) {
	t.Helper()
	for ours.Kind() == reflect.Pointer || ours.Kind() == reflect.Slice {
		ours, theirs = ours.Elem(), theirs.Elem()
	}
	if ours.Kind() != theirs.Kind() {
		t.Errorf("%s is no %s", ours, theirs)
	}
	if ours == theirs || ours.Kind() != reflect.Struct {
		return
	}
	if ours.NumField() != theirs.NumField() {
		t.Errorf("%s has %d fields, %s %d", ours, ours.NumField(), theirs, theirs.NumField())
	}
	for f := range theirs.Fields() {
		got, there := ours.FieldByName(f.Name)
		if !there {
			t.Errorf("%s has no field %s", ours, f.Name)
			continue
		}
		if name := f.Tag.Get("json"); got.Tag.Get("json") != name && f.Name != "ObjectMeta" && f.Name != "Spec" && f.Name != "TypeMeta" {
			t.Errorf("%s.%s: %q, want %q", ours, f.Name, got.Tag.Get("json"), name)
		}
		same(t, got.Type, f.Type)
	}
}
