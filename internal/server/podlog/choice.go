package podlog

import (
	"net/url"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Choice is which log a page shows.
type Choice struct {
	// Chosen is a container, or All.
	Chosen string
	// Previous: the log of its previous instance.
	Previous bool
	// Stream is v1.LogStreamStdout or v1.LogStreamStderr; "": both.
	Stream string
	// Absent is a container that was asked for and is not there; "" for none.
	Absent string
}

// Choose changes what the parameters of a request name; containers are those that there are.
func (c *Choice) Choose(q url.Values, containers []string) {
	switch name := q.Get("container"); {
	case name == All || slices.Contains(containers, name):
		c.Chosen = name
	default:
		c.Absent = name
	}
	c.Previous = q.Get("previous") == "true"
	if stream := q.Get("stream"); stream == v1.LogStreamStdout || stream == v1.LogStreamStderr {
		c.Stream = stream
	}
}

// LogQuery returns the parameters with which Choose makes the same choice.
func (c Choice) LogQuery() string {
	q := url.Values{"container": {c.Chosen}}
	if c.Previous {
		q.Set("previous", "true")
	}
	if c.Stream != "" {
		q.Set("stream", c.Stream)
	}
	return "?" + q.Encode()
}
