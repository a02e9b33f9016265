package pod

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// longestCSIDriverName is from the specification of CSI.
const longestCSIDriverName = 63

// CSIDriverName returns what is wrong with the name of a CSI driver, by Kubernetes' rules.
func CSIDriverName(name string) []string {
	why := validation.IsDNS1123Subdomain(strings.ToLower(name))
	if len(name) > longestCSIDriverName {
		why = append(why, validation.MaxLenError(longestCSIDriverName))
	}
	return why
}
