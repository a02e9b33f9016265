package persistent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

var claim = pod.Key{Namespace: "ns", Name: "data"}

func size(text string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(text)}
}

// documents returns a volume a that has no claimRef, b for the claim, c for another one, and what change makes of them.
func documents(change func(all pod.Objects)) pod.Objects {
	all := pod.Objects{Volumes: map[string]*v1.PersistentVolume{}, Claims: map[pod.Key]*v1.PersistentVolumeClaim{}}
	for name, ref := range map[string]*v1.ObjectReference{
		"a": nil, "b": {Namespace: "ns", Name: "data"}, "c": {Namespace: "other", Name: "data"},
	} {
		v := &v1.PersistentVolume{}
		v.Name, v.Spec.ClaimRef, v.Spec.Capacity, v.Spec.StorageClassName = name, ref, size("2Gi"), "fast"
		v.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany}
		all.Volumes[name] = v
	}
	change(all)
	return all
}

func naming(volume string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{}
	c.Spec.VolumeName, c.Spec.AccessModes = volume, []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	c.Spec.Resources.Requests = size("1Gi")
	return c
}

func TestBound(t *testing.T) {
	t.Parallel()
	class := func(name string) *string { return &name }
	for name, c := range map[string]struct {
		change    func(pod.Objects)
		want, err string
	}{
		"no documents":              {change: func(all pod.Objects) { clear(all.Volumes) }},
		"by its claimRef":           {change: func(pod.Objects) {}, want: "b"},
		"for another claim":         {change: func(all pod.Objects) { delete(all.Volumes, "b") }},
		"two for one claim":         {change: func(all pod.Objects) { all.Volumes["d"] = all.Volumes["b"] }, err: `the PersistentVolumes "b" and "d" are both for the claim ns/data`},
		"by its name":               {change: func(all pod.Objects) { all.Claims[claim] = naming("a") }, want: "a"},
		"by both":                   {change: func(all pod.Objects) { all.Claims[claim] = naming("b") }, want: "b"},
		"a volume that there is no": {change: func(all pod.Objects) { all.Claims[claim] = naming("d") }, err: `names the PersistentVolume "d", which no manifest has`},
		"another's":                 {change: func(all pod.Objects) { all.Claims[claim] = naming("c") }, err: `the PersistentVolume "c" is for the claim other/data, not for ns/data`},
		"two claims": {change: func(all pod.Objects) {
			all.Claims[claim], all.Claims[pod.Key{Namespace: "ns", Name: "e"}] = naming("a"), naming("a")
		}, err: `the claims ns/data and ns/e name the PersistentVolume "a"`},
		"two claims and a claimRef": {change: func(all pod.Objects) {
			all.Claims[claim], all.Claims[pod.Key{Namespace: "ns", Name: "e"}] = naming("b"), naming("b")
		}, want: "b"},
		"mode": {change: func(all pod.Objects) {
			all.Claims[claim] = naming("a")
			all.Claims[claim].Spec.AccessModes[0] = v1.ReadWriteMany
		}, err: "it has no access mode ReadWriteMany"},
		"class": {change: func(all pod.Objects) {
			all.Claims[claim] = naming("a")
			all.Claims[claim].Spec.StorageClassName = class("slow")
		}, err: `its storage class is "fast", and the claim's "slow"`},
		"the same class": {change: func(all pod.Objects) {
			all.Claims[claim] = naming("a")
			all.Claims[claim].Spec.StorageClassName = class("fast")
		}, want: "a"},
		"a device's claim": {change: func(all pod.Objects) {
			all.Claims[claim], all.Volumes["a"].Spec.VolumeMode = naming("a"), new(v1.PersistentVolumeBlock)
			all.Claims[claim].Spec.VolumeMode = new(v1.PersistentVolumeBlock)
		}, want: "a"},
		"a device": {change: func(all pod.Objects) {
			all.Claims[claim], all.Volumes["a"].Spec.VolumeMode = naming("a"), new(v1.PersistentVolumeBlock)
		}, err: "the volumeMode of one is Block, and of the other not"},
		"no device by its claimRef": {change: func(all pod.Objects) {
			all.Claims[claim] = naming("")
			all.Claims[claim].Spec.VolumeMode = new(v1.PersistentVolumeBlock)
		}, err: "the volumeMode of one is Block, and of the other not"},
		"a class, and a claimRef": {change: func(all pod.Objects) {
			all.Claims[claim] = naming("")
			all.Claims[claim].Spec.StorageClassName = class("slow")
		}, want: "b"},
		"size": {change: func(all pod.Objects) {
			all.Claims[claim] = naming("a")
			all.Claims[claim].Spec.Resources.Requests = size("3Gi")
		}, err: "its capacity is 2Gi, and the claim requests 3Gi"},
	} {
		v, err := Bound(documents(c.change), claim, nil)
		got := ""
		if v != nil {
			got = v.Name
		}
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.err)
		}
	}
}

// TestRecorded: of two claims that name one volume that which has used it keeps it.
func TestRecorded(t *testing.T) {
	t.Parallel()
	other := pod.Key{Namespace: "ns", Name: "a"}
	both := documents(func(all pod.Objects) { all.Claims[claim], all.Claims[other] = naming("a"), naming("a") })
	const each = `name the PersistentVolume "a", and it can have one`
	for name, c := range map[string]struct {
		users     []pod.Key
		unread    error
		mine, its string // the errors of claim and other
	}{
		"the first":  {users: []pod.Key{claim}, its: `the PersistentVolume "a" is the claim ns/data's, which has used it; it cannot be that of ns/a too`},
		"the second": {users: []pod.Key{other}, mine: `the PersistentVolume "a" is the claim ns/a's`},
		"both":       {users: []pod.Key{claim, other}, mine: each, its: each},
		"neither":    {mine: each, its: each},
		"unread":     {users: []pod.Key{claim}, unread: errors.New("damaged"), mine: "damaged", its: "damaged"},
	} {
		recorded := func(key pod.Key, volume string) (bool, error) {
			return volume == "a" && slices.Contains(c.users, key), c.unread
		}
		for key, want := range map[pod.Key]string{claim: c.mine, other: c.its} {
			v, err := Bound(both, key, recorded)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && v.Name != "a" {
				t.Errorf("%s: %s: %v, %v; want %q", name, key, v, err, want)
			}
		}
	}
}
