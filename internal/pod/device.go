package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// IsDevice reports a resource that is no part of every machine: its name has a domain, as in
// example.com/gpu.
func IsDevice(name v1.ResourceName) bool { return strings.Contains(string(name), "/") }
