package probe

import v1 "k8s.io/api/core/v1"

// outcome is the outcome of one probe request.
type outcome int

const (
	// unknown means that the request could not be made. It counts neither as a success nor as a
	// failure.
	unknown outcome = iota
	succeeded
	failed
	// warned is a success that may be unintended. It is counted as a success.
	warned
)

func (o outcome) String() string {
	return [...]string{"unknown", "success", "failure", "success with a warning"}[o]
}

// answer is an outcome and the response, output or error that it comes from.
type answer struct {
	outcome outcome
	message string
}

// tally counts equal outcomes in a row.
type tally struct {
	last outcome
	run  int32
}

// add records the next outcome and reports whether there have been as many equal ones in a row as
// the probe's threshold requires.
func (t *tally) add(o outcome, spec *v1.Probe) bool {
	if o == unknown {
		return false
	}
	if o != t.last {
		t.last, t.run = o, 0
	}
	t.run++
	if o == succeeded {
		return t.run >= spec.SuccessThreshold
	}
	return t.run >= spec.FailureThreshold
}
