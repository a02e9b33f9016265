package flags

import (
	"fmt"

	"github.com/spf13/pflag"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nodeLabels is the flag for labels of the node.
type nodeLabels struct{ labels map[string]string }

func (n *nodeLabels) add(f *pflag.FlagSet) {
	f.StringToStringVar(&n.labels, "node-labels", nil,
		"labels of the node, as key=value with commas between, that pods' nodeSelector and required node\n"+
			"affinity are matched with, beside kubernetes.io/hostname, kubernetes.io/os and kubernetes.io/arch")
	FromEnvironment(f)
}

// options checks the flag.
func (n *nodeLabels) options() (map[string]string, error) {
	for key, value := range n.labels {
		errs := metavalidation.ValidateLabels(map[string]string{key: value}, field.NewPath("label"))
		if len(errs) > 0 {
			return nil, fmt.Errorf("--node-labels %s=%s: %s", key, value, rule(errs[0].Detail))
		}
	}
	return n.labels, nil
}
