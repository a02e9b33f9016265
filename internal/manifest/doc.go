// Package manifest turns bytes into the desired set of pods: sources read files and URLs, Load decodes,
// defaults and validates, Merge makes one set of many. It does not know what runs, and it never says
// that a pod should stop because something could not be read.
package manifest
