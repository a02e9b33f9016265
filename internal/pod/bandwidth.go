package pod

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod/quantity"
)

// Kubernetes' annotations that limit the bandwidth of a pod's network, as a quantity of bits per
// second.
const (
	AnnotationIngress = "kubernetes.io/ingress-bandwidth"
	AnnotationEgress  = "kubernetes.io/egress-bandwidth"
)

// The limits of such a quantity, as in Kubernetes: 1k and 1P.
const slowest, fastest = 1_000, 1_000_000_000_000_000

// Bandwidth is the limit of a pod's incoming and outgoing traffic in bits per second; 0 means no
// limit.
type Bandwidth struct{ Ingress, Egress int64 }

// BandwidthOf returns the limits in p's annotations, which must have been validated.
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

// ParseBandwidth parses the value of a bandwidth annotation into bits per second.
func ParseBandwidth(text string) (int64, error) {
	speed, err := quantity.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("must be bits a second as a quantity, as in 10M: %w", err)
	}
	if bits := speed.Value(); bits >= slowest && bits <= fastest {
		return bits, nil
	}
	return 0, errors.New("must be from 1k to 1P bits a second")
}
