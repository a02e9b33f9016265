package support

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"podrun.io/podrun/internal/manifest/kinds"
)

const head = `# Supported fields of a Pod

This page is generated from the table that ` + "`podrun validate`, `serve` and `once`" + ` use. An unsupported field is an
error that names file, line and field. A field that only a scheduler or an API server acts on, and without which the pod
runs here as meant, is ignored with a warning, which ` + "`validate`, `describe` and `events`" + ` show; with
` + "`--strict-fields`" + ` it is an error too. podrun always accepts a field that is left out, or that has an equivalent empty
value. The table does not list the fields below one that is unsupported or ignored.

So the output of ` + "`kubectl get pod -o yaml`" + ` runs as it is, except that ` + "`spec.nodeName`" + ` must be this node's name or be
ignored with ` + "`--ignore-node-name`" + `. The volume ` + "`kube-api-access-…`" + ` with a service account's token, which an API server
added to it, is left out with its mounts and a warning: a program that needs the API server's token does not find one.
All of the manifest takes part in the pod's UID, also what is ignored.

podrun reads documents of the kinds Pod, PodList, List, ConfigMap, Secret, PersistentVolumeClaim and PersistentVolume
(apiVersion v1), CSIDriver and StorageClass (apiVersion storage.k8s.io/v1), and
Deployment, ReplicaSet, StatefulSet and DaemonSet (apiVersion apps/v1), and Job and CronJob (apiVersion batch/v1;
[below](#workloads-claims-and-volumes)). It passes over those that the [last table](#kinds-that-are-passed-over) lists, with a warning; any other kind is an error.

| Field | Supported | Warning | Remarks |
| --- | --- | --- | --- |
`

const annotationHead = `
## Annotations

podrun keeps annotations unchanged. Only these have a meaning for it; a name that ends in / is a prefix:

| Annotation | Supported | Remarks |
| --- | --- | --- |
`

const workloadHead = `
## Workloads, claims and volumes

The template of a workload is a Pod: the tables above hold for it. [workloads.md](workloads.md) says which pods a workload
makes.

| Field | Supported | Warning | Remarks |
| --- | --- | --- | --- |
`

const kindsHead = `
## Kinds that are passed over

The manifests of many projects have objects beside their pods that only a cluster needs. podrun reads these kinds, does
nothing with them, and warns about each object, because a program may rely on it; with ` + "`--strict-kinds`" + ` such an object is
an error. Of the object only apiVersion, kind and name are checked.

| Kind | What that means here |
| --- | --- |
`

// Document returns the table as a Markdown document: docs/compat.md.
func Document() []byte {
	var b bytes.Buffer
	b.WriteString(head)
	for _, e := range Entries() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", e.Field, e.Support, e.Warning, e.Note)
	}
	b.WriteString(annotationHead)
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, annotations[name].support, annotations[name].text())
	}
	b.WriteString(workloadHead)
	for _, e := range WorkloadEntries() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", e.Field, e.Support, e.Warning, e.Note)
	}
	b.WriteString(kindsHead)
	for _, k := range kinds.PassedOver() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", k.Name, k.Meaning)
	}
	return b.Bytes()
}
