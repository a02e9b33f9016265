package pod

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotations of Kubernetes' that bound how fast a pod's network is, as a quantity of bits a second.
const (
	AnnotationIngress = "kubernetes.io/ingress-bandwidth"
	AnnotationEgress  = "kubernetes.io/egress-bandwidth"
)

// The bounds of such a quantity, as Kubernetes has them: 1k and 1P.
const slowest, fastest = 1_000, 1_000_000_000_000_000

// Bandwidth is how much may come to a pod and go from it, in bits a second; 0: any amount.
type Bandwidth struct{ Ingress, Egress int64 }

// BandwidthOf reads p's annotations, which validation has seen to.
func BandwidthOf(p *v1.Pod) Bandwidth {
	read := func(key string) int64 {
		text, ok := p.Annotations[key]
		if !ok {
			return 0
		}
		bits, _ := ParseBandwidth(text)
		return bits
	}
	return Bandwidth{Ingress: read(AnnotationIngress), Egress: read(AnnotationEgress)}
}

// ParseBandwidth returns the bits a second that such an annotation says.
func ParseBandwidth(text string) (int64, error) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("must be bits a second as a quantity, as in 10M: %w", err)
	}
	if bits := quantity.Value(); bits >= slowest && bits <= fastest {
		return bits, nil
	}
	return 0, errors.New("must be from 1k to 1P bits a second")
}
