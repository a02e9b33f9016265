package agent

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"podrun.io/podrun/internal/runtime/containerd"
)

// NodeConfig is what a machine has for its pods, beside what flags say.
type NodeConfig struct {
	// RuntimeClasses are the values of runtimeClassName that pods may give.
	RuntimeClasses map[string]struct {
		// Runtime is containerd's name for the class's runtime, such as io.containerd.runsc.v1, or the path of
		// its shim; the default is what other pods have.
		Runtime string `json:"runtime,omitempty"`
		// BinaryName is what runs containers in runc's place, such as crun.
		BinaryName string `json:"binaryName,omitempty"`
	} `json:"runtimeClasses,omitempty"`
}

// ReadNodeConfig reads a file in YAML. A field that it does not know is an error.
func ReadNodeConfig(path string) (NodeConfig, error) {
	var out NodeConfig
	text, err := os.ReadFile(path)
	if err != nil {
		return out, err
	}
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		return out, fmt.Errorf("%s: %w", path, err)
	}
	for name, class := range out.RuntimeClasses {
		if class.Runtime == "" && class.BinaryName == "" {
			return out, fmt.Errorf("%s: runtimeClasses.%s: names neither runtime nor binaryName", path, name)
		}
	}
	return out, nil
}

// Classes are the runtime classes as the runtime wants them.
func (n NodeConfig) Classes() map[string]containerd.RuntimeClass {
	out := map[string]containerd.RuntimeClass{}
	for name, class := range n.RuntimeClasses {
		out[name] = containerd.RuntimeClass{Runtime: class.Runtime, Binary: class.BinaryName}
	}
	return out
}
