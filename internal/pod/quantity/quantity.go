// Package quantity parses Kubernetes' quantities, such as 100m, 64Mi and 1e3, that anybody may have written. It refuses
// those with which Kubernetes' own type computes wrongly, or for hours: of its numbers beyond 64 bits it returns the
// lowest bits, which may be 0, and an exponent of 9 digits makes it compute a number with as many digits.
//
// Begin reading at Parse.
package quantity

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Most is the highest quantity: that of 64 bits, as in Kubernetes.
const Most = math.MaxInt64

// longest is the maximum number of characters of a quantity, and of the digits of its exponent.
const (
	longest         = 1000
	longestExponent = 2
)

// ErrRefused is that a quantity is beyond what podrun calculates with. Errors with it say in which way.
var ErrRefused = errors.New("is beyond the limits of quantities")

// Parse parses a quantity in Kubernetes' format.
func Parse(text string) (resource.Quantity, error) {
	if err := bounded(text); err != nil {
		return resource.Quantity{}, err
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, err
	}
	if !fits(q) {
		return resource.Quantity{}, fmt.Errorf("%w: at most %d", ErrRefused, int64(Most))
	}
	return q, nil
}

// bounded returns an error for a text that may take long to parse. It may be no quantity at all.
func bounded(text string) error {
	if len(text) > longest {
		return fmt.Errorf("%w: at most %d characters", ErrRefused, longest)
	}
	if at := strings.LastIndexAny(text, "eE"); at >= 0 {
		digits := strings.TrimLeft(strings.TrimLeft(text[at+1:], "+-"), "0")
		if len(digits) > longestExponent {
			return fmt.Errorf("%w: at most %d digits of an exponent", ErrRefused, longestExponent)
		}
	}
	return nil
}

// fits reports that a quantity is not above Most, and not below its negative, and that Value is the quantity's: that of
// some negative ones is not.
func fits(q resource.Quantity) bool {
	if q.Sign() >= 0 {
		return q.CmpInt64(Most) <= 0 && q.Value() >= 0
	}
	positive := q.DeepCopy()
	positive.Neg()
	return fits(positive) && positive.Value() == -q.Value()
}

// Whole returns a quantity that is a whole number from 1 on.
func Whole(q resource.Quantity) (int64, bool) {
	n := q.Value()
	return n, n > 0 && q.CmpInt64(n) == 0
}
