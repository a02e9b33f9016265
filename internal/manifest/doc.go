// Package manifest turns the bytes of manifests into the desired set of pods.
//
// It owns decoding, defaulting, validation and the identity of pods (Load), the result of one
// source of manifests (Snapshot), and the desired state made of all sources (Merge, Desired). It is
// pure but for Mux, which merges snapshots as they arrive, and Reader, which bounds the time of a
// load. It does not read files or URLs: the packages below internal/manifest/source implement
// Source. It does not know which pods run, and an input that cannot be read never removes a pod.
//
// Begin reading at Load for one manifest, and at Merge for the set of all.
package manifest
