package instance

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/oci"
)

// SpecType is the type URL that containerd uses for a spec.
const SpecType = "types.containerd.io/opencontainers/runtime-spec/1/Spec"

// CgroupOf returns the path of a container's cgroup below each hierarchy; "" if its record does not
// have it.
func CgroupOf(c containers.Container) string { return oci.CgroupDir(CgroupsPathOf(c)) }

// CgroupsPathOf returns the cgroups path in the container's spec.
func CgroupsPathOf(c containers.Container) string {
	if spec := SpecOf(c); spec.Linux != nil {
		return spec.Linux.CgroupsPath
	}
	return ""
}

// SpecOf returns the container's spec; an empty one if its record has none.
func SpecOf(c containers.Container) (spec specs.Spec) {
	if c.Spec == nil || json.Unmarshal(c.Spec.GetValue(), &spec) != nil {
		return specs.Spec{}
	}
	return spec
}

// IsRunc reports whether a runtime, by containerd's name, is a shim that runs runc or a binary that
// accepts runc's commands.
func IsRunc(name string) bool { return strings.Contains(filepath.Base(name), "runc") }

// Encoded is a value that is already encoded, with its type URL.
type Encoded struct {
	URL   string
	Value []byte
}

// GetTypeUrl implements typeurl.Any.
func (e Encoded) GetTypeUrl() string { return e.URL }

// GetValue implements typeurl.Any.
func (e Encoded) GetValue() []byte { return e.Value }

var _ typeurl.Any = Encoded{}
