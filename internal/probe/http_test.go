package probe

import (
	"errors"
	"testing"
)

// TestAnswerBeforeTheRequest: a server that writes before it is asked gets no format verbs into the probe's message.
func TestAnswerBeforeTheRequest(t *testing.T) {
	t.Parallel()
	odd := errors.New(`Get "http://192.0.2.1/": readLoopPeekFailLocked: %!w(<nil>)`)
	if got, want := plain(odd).Error(), `Get "http://192.0.2.1/": the server answered before it was asked`; got != want {
		t.Errorf("got %s", got)
	}
}
