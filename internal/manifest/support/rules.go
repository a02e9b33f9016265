package support

// Rules say which fields that podrun ignores, and which objects that it passes over, a manifest may
// have. The zero value accepts them all, with a warning, but no other node's name.
type Rules struct {
	// StrictFields makes each warning about a field an error.
	StrictFields bool
	// StrictKinds makes each object that is passed over an error.
	StrictKinds bool
	// IgnoreNodeName accepts a pod whose spec.nodeName is another node's, with a warning.
	IgnoreNodeName bool
}
