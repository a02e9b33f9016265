package probe

import v1 "k8s.io/api/core/v1"

// outcome is what one question came to.
type outcome int

const (
	// unknown: it could not be asked. It counts neither way.
	unknown outcome = iota
	succeeded
	failed
	// warned is a success that its author may not have meant. Who counts takes it for one.
	warned
)

func (o outcome) String() string {
	return [...]string{"unknown", "success", "failure", "success with a warning"}[o]
}

// answer is an outcome with what was heard.
type answer struct {
	outcome outcome
	message string
}

// tally counts the same outcomes in a row.
type tally struct {
	last outcome
	run  int32
}

// add takes the next outcome and reports whether there have been as many in a row as the probe asks for.
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
