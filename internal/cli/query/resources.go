package query

import (
	"fmt"
	"slices"
	"strings"
)

// IsPods reports whether a resource type is pods.
func IsPods(kind string) bool { return slices.Contains([]string{"pods", "pod", "po"}, kind) }

// IsEvents reports whether a resource type is events.
func IsEvents(kind string) bool { return slices.Contains([]string{"events", "event", "ev"}, kind) }

// IsVolumes reports whether a resource type is the volumes of persistentVolumeClaims.
func IsVolumes(kind string) bool {
	return slices.Contains([]string{
		"volumes", "volume", "pvc", "persistentvolumeclaims", "persistentvolumeclaim",
	}, kind)
}

// PodNames returns the names in the arguments `pods NAME...` or `pods/NAME...`, of which there is at
// least one.
func PodNames(args []string) ([]string, error) {
	if !strings.Contains(args[0], "/") {
		if !IsPods(args[0]) {
			return nil, fmt.Errorf(
				"unknown resource type %q: podrun has pods, volumes and events; podrun images lists images", args[0])
		}
		return args[1:], nil
	}
	var names []string
	for _, arg := range args {
		kind, name, _ := strings.Cut(arg, "/")
		if !IsPods(kind) || name == "" {
			return nil, fmt.Errorf("unknown resource %q: must be pod/NAME", arg)
		}
		names = append(names, name)
	}
	return names, nil
}
