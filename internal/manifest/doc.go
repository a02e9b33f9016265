// Package manifest turns the bytes of manifests into the desired set of pods. It is pure.
//
// It owns the defaults and the identity of pods (Load), the result of one source of manifests (Snapshot), the desired
// state made of all sources (Merge, Desired), and what a manifest changes on a pod that runs (SameRun, Adopt).
//
// Of a load, package decode parses the text, package support refuses unsupported fields, and package validate checks
// the values. Files, URLs and commands are read by the packages below internal/manifest/source, which implement Source.
// Which pods run is not found out here: it is part of the input. An input that cannot be read never removes a pod.
//
// Begin reading at Load for one manifest, and at Merge for the set of all.
package manifest
