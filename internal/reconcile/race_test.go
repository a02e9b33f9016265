//go:build race

package reconcile_test

// The race detector makes everything ten times slower, and looks for something else than a cut at each mutation: it is
// content with some of them.
func init() { cutStride = 7 }
