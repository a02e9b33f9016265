package node

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/fileerror"
)

// Config is the node configuration file: what a machine offers its pods in addition to the
// flags.
type Config struct {
	// RuntimeClasses are the values that pods may give as runtimeClassName.
	RuntimeClasses map[string]struct {
		// Runtime is containerd's name for the runtime of the class, such as
		// io.containerd.runsc.v1, or the path of its shim. The default is the runtime of pods
		// without a class.
		Runtime string `json:"runtime,omitempty"`
		// BinaryName is the OCI runtime to use instead of runc, such as crun.
		BinaryName string `json:"binaryName,omitempty"`
	} `json:"runtimeClasses,omitempty"`
	// Devices are the device resources that pods may request in limits: names with a domain, such
	// as example.com/gpu, each with the CDI names of its devices, such as example.com/gpu=0. A
	// device belongs to one pod at a time.
	Devices map[v1.ResourceName][]string `json:"devices,omitempty"`
	// CPUPolicy is none, which is the default, or static: containers of Guaranteed pods that limit their CPU to a
	// whole number have so many CPUs for themselves.
	CPUPolicy string `json:"cpuPolicy,omitempty"`
	// ReservedCPUs are the CPUs that no container has for itself, in the kernel's format, such as 0-1. What they
	// can do is not offered to pods. The static policy needs at least one.
	ReservedCPUs *intstr.IntOrString `json:"reservedCPUs,omitempty"`
}

// staticPolicy is the value of CPUPolicy with which containers may have CPUs for themselves.
const staticPolicy = "static"

// ReadConfig reads a YAML file. An unknown field is an error.
func ReadConfig(path string) (Config, error) {
	text, err := sys.ReadSettings(path)
	if err != nil {
		return Config{}, fileerror.Named(err)
	}
	out, err := parseConfig(text)
	if err != nil {
		return out, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// parseConfig parses the contents of the file.
func parseConfig(text []byte) (Config, error) {
	var out Config
	docs, errs := decode.Parse(text)
	for _, d := range docs {
		errs = append(errs, decode.Check(d.Value, reflect.TypeFor[Config](), "", nil)...)
	}
	if len(errs) > 0 {
		return out, errs[0]
	}
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		return out, err
	}
	for name, class := range out.RuntimeClasses {
		if class.Runtime == "" && class.BinaryName == "" {
			return out, fmt.Errorf("runtimeClasses.%s: names neither runtime nor binaryName", name)
		}
	}
	if err := verifyDevices(out.Devices); err != nil {
		return out, fmt.Errorf("devices.%w", err)
	}
	if reserved, err := out.reserved(); err != nil {
		return out, fmt.Errorf("reservedCPUs: %w", err)
	} else if out.CPUPolicy == staticPolicy && reserved.IsEmpty() {
		return out, errors.New("reservedCPUs: must have a CPU, such as 0, which cpuPolicy: static keeps for all others")
	}
	if out.CPUPolicy != "" && out.CPUPolicy != "none" && out.CPUPolicy != staticPolicy {
		return out, fmt.Errorf("cpuPolicy: %q must be none or %s", out.CPUPolicy, staticPolicy)
	}
	return out, nil
}

// verifyDevices refuses resource names that no pod can request, device names that no CDI
// specification can have, and devices that are listed twice.
func verifyDevices(named map[v1.ResourceName][]string) error {
	known := map[string]v1.ResourceName{}
	for _, resource := range slices.Sorted(maps.Keys(named)) {
		errs := validation.IsQualifiedName(string(resource))
		if !pod.IsDevice(resource) || strings.Contains(string(resource), v1.ResourceDefaultNamespacePrefix) {
			errs = append(errs, "must have a domain of its own, as in example.com/gpu")
		}
		if len(errs) > 0 {
			return fmt.Errorf("%s: %s", resource, strings.Join(errs, "; "))
		}
		for _, device := range named[resource] {
			if other, twice := known[device]; twice {
				return fmt.Errorf("%s: %s is named twice, also by %s", resource, device, other)
			}
			if !containerd.IsDeviceName(device) {
				return fmt.Errorf("%s: %q must be a device of CDI's, as in vendor.com/class=name", resource, device)
			}
			known[device] = resource
		}
	}
	return nil
}

// Classes returns the runtime classes as the containerd package needs them.
func (c Config) Classes() map[string]containerd.RuntimeClass {
	out := map[string]containerd.RuntimeClass{}
	for name, class := range c.RuntimeClasses {
		out[name] = containerd.RuntimeClass{Runtime: class.Runtime, Binary: class.BinaryName}
	}
	return out
}
