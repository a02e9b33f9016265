// Package manifest turns bytes into the desired set of pods: Load decodes, defaults and validates, Merge makes
// one set of what all sources say. The sources, which read files and URLs, are rooms of their own that import it.
// It does not know what runs, and it never says that a pod should stop because something could not be read.
package manifest
