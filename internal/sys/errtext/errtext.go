// Package errtext compares errors by their text, for one purpose: not to report the same failure
// again and again. Nothing else may depend on the text of an error; its only function is Same.
package errtext

// Same reports whether two errors have the same text, or are both nil.
func Same(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}
