package node

import (
	"testing"

	"sigs.k8s.io/yaml"
)

// FuzzNodeConfig parses arbitrary node configuration files. An accepted configuration names each
// device once, by a valid CDI name, and is unchanged after it was written and read again.
func FuzzNodeConfig(f *testing.F) {
	for _, text := range []string{
		"runtimeClasses:\n  a: {runtime: r, binaryName: b}\ndevices:\n  v.example/gpu: [v.example/gpu=0]\n", "", "- a\n", "devices: {gpu: []}\n",
		"devices: {v.example/gpu: [v/g=0, v/g=0]}\n", "runtimeClasses:\n  a: {}\n", "a: &a [*a]\n", "runtimeClasses: &x {a: {runtime: r}}\ndevices: {<<: *x}\n",
		"runtimeClasses:\n  a: {runtime: r}\n  a: {runtime: s}\n", "devices: {v.example/gpu: null}\n", `{"runtimeClasses":{"a":{"runtime":"r"}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseConfig(text)
		if err != nil {
			return
		}
		for name, class := range c.Classes() {
			if class.Runtime == "" && class.Binary == "" {
				t.Errorf("class %q is nothing", name)
			}
		}
		if err := verifyDevices(c.Devices); err != nil {
			t.Errorf("accepted, though %v", err)
		}
		written, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseConfig(written)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, written)
		}
		if again, err := yaml.Marshal(back); err != nil || string(again) != string(written) {
			t.Errorf("%s comes back as %s, %v", written, again, err)
		}
	})
}
