package env

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

// inside returns a container in a pod that has everything to refer to.
func inside(change ...func(c *v1.Container)) pod.Inside {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web-node", UID: "u1", Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"note": "line\n\"x\""},
	}}
	p.Spec.NodeName = "node"
	p.Spec.Containers = []v1.Container{{Name: "main"}, {Name: "other"}}
	p.Spec.Containers[1].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}
	c := &p.Spec.Containers[0]
	c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m"), "hugepages-2Mi": resource.MustParse("4Mi")}
	for _, f := range change {
		f(c)
	}
	key := pod.Key{Namespace: "ns", Name: "m"}
	return pod.Inside{
		Pod: p, Container: c, Sandbox: pod.Sandbox{IPs: []string{"10.64.0.2", "fd00::2"}}, HostIPs: []string{"192.0.2.1"},
		Node: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), "hugepages-2Mi": resource.MustParse("64Mi")},
		Objects: pod.Objects{
			ConfigMaps: map[pod.Key]*v1.ConfigMap{key: {Data: map[string]string{"z": "from map", "a": "first"}, BinaryData: map[string][]byte{"b": {1}}}},
			Secrets: map[pod.Key]*v1.Secret{
				key: {Data: map[string][]byte{"pass": []byte("word")}}, {Namespace: "ns", Name: "binary"}: {Data: map[string][]byte{"nul": []byte("a\x00b")}},
			},
		},
		Files: map[pod.FileKey]string{
			{Volume: "v", Path: "vars"}:  "# vars\n\nA='1'\nMANY='a\nb' # said\nA='2'\n",
			{Volume: "v", Path: "other"}: "A='1'\nA=2\n",
			{Volume: "v", Path: "nul"}:   "A='1\x00LD_PRELOAD=x'\n",
		},
	}
}

func from(name string, source v1.EnvVarSource) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &source}
}

func field(path string) v1.EnvVarSource {
	return v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
}

func amount(container, name, divisor string) v1.EnvVarSource {
	ref := &v1.ResourceFieldSelector{ContainerName: container, Resource: name}
	if divisor != "" {
		ref.Divisor = resource.MustParse(divisor)
	}
	return v1.EnvVarSource{ResourceFieldRef: ref}
}

func ofMap(name, key string, optional bool) v1.EnvVarSource {
	return v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional}}
}

func ofSecret(name, key string, optional bool) v1.EnvVarSource {
	return v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional}}
}

func ofFile(path, key string, optional bool) v1.EnvVarSource {
	return v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: path, Key: key, Optional: &optional}}
}

func TestResolveOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		source v1.EnvVarSource
		want   string
	}{
		{"name", field("metadata.name"), "web-node"},
		{"namespace", field("metadata.namespace"), "ns"},
		{"uid", field("metadata.uid"), "u1"},
		{"label", field("metadata.labels['a']"), "1"},
		{"no such label", field("metadata.labels['none']"), ""},
		{"annotation", field("metadata.annotations['note']"), "line\n\"x\""},
		{"node", field("spec.nodeName"), "node"},
		{"account", field("spec.serviceAccountName"), ""},
		{"pod IP", field("status.podIP"), "10.64.0.2"},
		{"pod IPs", field("status.podIPs"), "10.64.0.2,fd00::2"},
		{"host IP", field("status.hostIP"), "192.0.2.1"},
		{"host IPs", field("status.hostIPs"), "192.0.2.1"},
		{"unknown", field("status.phase"), "error: unsupported fieldPath: status.phase"},
		{"cpu rounds up", amount("", "limits.cpu", ""), "2"},
		{"cpu in thousandths", amount("", "limits.cpu", "1m"), "1500"},
		{"no limit is the machine's", amount("", "limits.memory", "1Mi"), "8192"},
		{"no request is 0", amount("", "requests.memory", ""), "0"},
		{"another's request rounds up", amount("other", "requests.memory", "1M"), "105"},
		{"huge pages", amount("", "limits.hugepages-2Mi", "1Mi"), "4"},
		{"huge pages are the container's alone", amount("other", "limits.hugepages-2Mi", "1Mi"), "0"},
		{"no such container", amount("none", "limits.cpu", ""), "error: container none not found"},
		{"no such resource", amount("", "limits.gpu", ""), "error: unsupported container resource: limits.gpu"},
		{"ConfigMap", ofMap("m", "z", false), "from map"},
		{"no ConfigMap", ofMap("none", "z", false), `error: configmap "none" not found`},
		{"no ConfigMap, optional", ofMap("none", "z", true), "not set"},
		{"no key", ofMap("m", "none", false), "error: couldn't find key none in ConfigMap ns/m"},
		{"no key, optional", ofMap("m", "none", true), "not set"},
		{"a binary key is none", ofMap("m", "b", false), "error: couldn't find key b in ConfigMap ns/m"},
		{"Secret", ofSecret("m", "pass", false), "word (secret)"},
		{"no Secret", ofSecret("none", "pass", false), `error: secret "none" not found`},
		{"no Secret, optional", ofSecret("none", "pass", true), "not set"},
		{"no key of a Secret", ofSecret("m", "none", false), "error: couldn't find key none in Secret ns/m"},
		{"file, the last one counts", ofFile("vars", "A", false), "2"},
		{"file, over lines", ofFile("vars", "MANY", false), "a\nb"},
		{"file, no key", ofFile("vars", "B", false), `error: environment variable key "B" not found in file vars of volume v`},
		{"file, no key, optional", ofFile("vars", "B", true), "not set"},
		{"file of another form", ofFile("other", "A", true), "error: file other of volume v: line 2 is not of the form KEY='value', with no space around the ="},
		{"file with a NUL", ofFile("nul", "A", true), "error: the value of variable V has a NUL character, which no environment can hold"},
		{"Secret with a NUL", ofSecret("binary", "nul", false), "error: the value of variable V has a NUL character, which no environment can hold"},
		{"no file", ofFile("none", "A", false), "error: couldn't find file none in volume v"},
		{"no file, optional", ofFile("none", "A", true), "not set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			vars, err := Resolve(inside(func(m *v1.Container) { m.Env = []v1.EnvVar{from("V", c.source)} }))
			got := "not set"
			switch {
			case err != nil:
				got = "error: " + err.Error()
			case len(vars) == 1:
				if got = vars[0].Value; vars[0].Secret {
					got += " (secret)"
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"A=1":        "line 1 is not of the form KEY='value', with no space around the =",
		"\nA":        "line 2 is not of the form KEY='value', with no space around the =",
		"A='1\nb\n":  "the value that begins in line 1 has no closing quote",
		"A='1' more": "line 1 has text after the closing quote",
	} {
		if _, err := parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// TestLongValue: a file with one value over many lines, which a container can write, is read in linear time. It counts
// what is allocated, because times vary.
func TestLongValue(t *testing.T) {
	lines := strings.Repeat("\n", 1<<16)
	text := "# a comment\nB='x'\nA='" + lines + "' # another\nC='1'"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	vars, err := parse(text)
	runtime.ReadMemStats(&after)
	if err != nil || vars["A"] != lines {
		t.Errorf("%d bytes, %v", len(vars["A"]), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 100*uint64(len(text)) {
		t.Errorf("it took %d bytes of memory", took)
	}
}

func TestHostNetworkHasTheHostsAddresses(t *testing.T) {
	t.Parallel()
	in := inside()
	in.Pod.Spec.HostNetwork = true
	if got, err := Field(in, "status.podIP"); got != "192.0.2.1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	in.HostIPs = nil
	if _, err := Field(in, "status.hostIP"); !errors.Is(err, ErrNoAddress) {
		t.Errorf("without an address: %v", err)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	name := v1.LocalObjectReference{Name: "m"}
	vars, err := Resolve(inside(func(c *v1.Container) {
		c.EnvFrom = []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name}},
			{Prefix: "S_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: name}},
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: new(true)}},
		}
		c.Env = []v1.EnvVar{
			{Name: "LATER", Value: "$(AFTER) $(a) $(S_pass)"},
			{Name: "AFTER", Value: "x"},
			{Name: "z", Value: "over"},
			{Name: "AFTER", Value: "$(AFTER)$(AFTER)$$(AFTER)"},
			{Name: "EMPTY"},
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range vars {
		text := v.Name + "=" + v.Value
		if v.Secret {
			text += " (secret)"
		}
		got = append(got, text)
	}
	const want = "a=first|z=over|S_pass=word (secret)|LATER=$(AFTER) first word (secret)|AFTER=xx$(AFTER)|EMPTY="
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
}

func TestMissingEnvFrom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from v1.EnvFromSource
		want string
	}{
		{v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "x"}}}, `configmap "x" not found`},
		{v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "x"}}}, `secret "x" not found`},
	} {
		_, err := Resolve(inside(func(m *v1.Container) { m.EnvFrom = []v1.EnvFromSource{c.from} }))
		if err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	if got := Lines(map[string]string{"b": "2", "a": "x\n\"y\""}); got != "a=\"x\\n\\\"y\\\"\"\nb=\"2\"" {
		t.Errorf("%s", got)
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	vars := []pod.Variable{{Name: "A", Value: "1"}, {Name: "EMPTY"}, {Name: "odd name", Value: "o"}, {Name: "REF", Value: "$(A)"}}
	for in, want := range map[string]string{
		"$(A)": "1", "x$(A)y$(A)": "x1y1", "$$(A)": "$(A)", "$$$(A)": "$1", "$$$$(A)": "$$(A)", "$(B)": "$(B)",
		"$(EMPTY)": "", "$(odd name)": "o", "$A": "$A", "$": "$", "a$": "a$", "$(": "$(", "$(A": "$(A", "$()": "$()",
		"$(REF)": "$(A)", "$($(A))": "$($(A))", "": "", ")$(A)": ")1", "€$(A)": "€1",
	} {
		if got, _, err := Expand(in, vars); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
}

// TestLimitsOfThePod: a container without a limit of its own has the pod's, before the machine's; its requests are its own.
func TestLimitsOfThePod(t *testing.T) {
	t.Parallel()
	in := inside()
	amounts := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("3"), v1.ResourceMemory: resource.MustParse("256Mi"), "hugepages-2Mi": resource.MustParse("8Mi"),
	}
	in.Pod.Spec.Resources = &v1.ResourceRequirements{Limits: amounts, Requests: amounts}
	in.Pod.Spec.Containers[1].Resources.Limits = v1.ResourceList{v1.ResourceMemory: {}} // 0 is none
	for _, c := range []struct{ container, name, want string }{
		{"main", "limits.cpu", "2"},
		{"main", "limits.memory", "256"},
		{"other", "limits.cpu", "3"},
		{"other", "limits.memory", "256"},
		{"other", "limits.hugepages-2Mi", "0"},
		{"other", "limits.ephemeral-storage", "0"},
		{"other", "requests.cpu", "0"},
		{"other", "requests.memory", "100"},
	} {
		ref := &v1.ResourceFieldSelector{ContainerName: c.container, Resource: c.name, Divisor: resource.MustParse("1Mi")}
		if strings.HasSuffix(c.name, "cpu") {
			ref.Divisor = resource.MustParse("1")
		}
		if got, err := Resource(in, ref); err != nil || got != c.want {
			t.Errorf("%s of %s: %q, %v, want %q", c.name, c.container, got, err, c.want)
		}
	}
}
