//go:build race

package reconcile_test

// The race detector slows everything down tenfold, and its purpose is not to find a wrong result
// after a cut: a part of the mutations is enough.
func init() { cutStride = 7 }
