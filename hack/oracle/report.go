package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// report counts the verdicts and separates intended from unintended differences.
type report struct {
	manifests, bothTake, bothRefuse, unsupported int
	// used counts the manifests that show an intended difference, by its index in meant; example
	// has the name of one.
	used    []int
	example []string
	// rest are the unintended differences.
	rest []string
	// levels has the counts for each level of the Pod Security Standards.
	levels map[string]*tally
}

func newReport() *report {
	r := &report{used: make([]int, len(meant)), example: make([]string, len(meant)), levels: map[string]*tally{}}
	for _, level := range levels {
		r.levels[string(level)] = &tally{}
	}
	return r
}

// excuse returns the index in meant of the entry that explains a difference, or -1.
func excuse(d difference, podrun verdict) int {
	return slices.IndexFunc(meant, func(m meaning) bool { return m.explains(d, podrun) })
}

// add counts a manifest with its verdicts and differences; it returns false if one of them is
// unintended.
func (r *report) add(m manifest, podrun, kube verdict, found []difference) bool {
	r.manifests++
	refused := false
	for _, e := range podrun.Errors {
		refused = refused || e.Refused
	}
	switch {
	case len(podrun.Errors) == 0 && len(kube.Errors) == 0:
		r.bothTake++
	case len(podrun.Errors) > 0 && len(kube.Errors) > 0:
		r.bothRefuse++
	case refused:
		r.unsupported++
	}
	if len(podrun.Pods)+len(kube.Pods) > 0 {
		for level, t := range r.levels {
			t.add(podrun, level, kube.Levels[level])
		}
	}
	good := true
	for _, d := range found {
		i := excuse(d, podrun)
		if i < 0 {
			good = false
			r.rest = append(r.rest, fmt.Sprintf("%s\n    %s", m.Name, d))
			continue
		}
		r.used[i]++
		if r.example[i] == "" {
			r.example[i] = m.Name
		}
	}
	return good
}

// stale returns the entries of meant that no manifest shows.
func (r *report) stale() []string {
	var lines []string
	for i, n := range r.used {
		if n == 0 {
			lines = append(lines, meant[i].what)
		}
	}
	return lines
}

func (r *report) print(out io.Writer) {
	for _, line := range r.rest {
		fmt.Fprintln(out, line)
	}
	for i, m := range meant {
		fmt.Fprintf(out, "%6d  meant: %s\n", r.used[i], m.what)
	}
	fmt.Fprintf(out, "%6d  manifests\n%6d  taken by both, and the same pod\n"+
		"%6d  refused by both, for the same fields\n%6d  refused by podrun alone, as not supported\n",
		r.manifests, r.bothTake, r.bothRefuse, r.unsupported)
	for _, level := range levels {
		fmt.Fprintf(out, "%s:\n%s", levelField(level), r.levels[string(level)])
	}
	fmt.Fprintf(out, "%6d  differences that are not meant\n", len(r.rest))
}

func (r *report) err() error {
	if len(r.rest) > 0 {
		return fmt.Errorf("%d verdicts differ; fix podrun, or add a reason to hack/oracle/meant.go", len(r.rest))
	}
	if stale := r.stale(); len(stale) > 0 {
		return fmt.Errorf("no manifest shows these differences of hack/oracle/meant.go:\n%s", strings.Join(stale, "\n"))
	}
	return nil
}

// document returns the table of intended differences as Markdown: docs/oracle.md. It has no counts,
// because they change with each field that podrun supports.
func (r *report) document() []byte {
	var b bytes.Buffer
	b.WriteString(docHead)
	for i, m := range meant {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.what, m.why, cell(r.example[i]))
	}
	return b.Bytes()
}

func cell(name string) string {
	if name == "" {
		return ""
	}
	return "`" + strings.NewReplacer("|", `\|`, "`", "'", "\n", " ").Replace(name) + "`"
}

const docHead = `# podrun's verdict and Kubernetes'

Written by ` + "`make oracle`" + `, which runs some twenty-seven thousand manifests through podrun and through Kubernetes 1.37.2's own code. It fails when
they differ in anything that is not in the table below.

- **Input.** The project's fixtures (` + "`testdata/manifests`" + `); unusual texts written by hand (` + "`hack/oracle/oddities.go`" + `); a hundred spellings of a
  YAML scalar in each kind of field; edge values in every field of a Pod, found by reflection over Kubernetes' types, both in a full pod
  and in a minimal one; rules between fields (` + "`hack/oracle/values.go`" + `); 400 combinations of edge values drawn with a fixed seed; and what the Pod
  Security Standards restrict (` + "`hack/oracle/restrictions.go`" + `), in each kind of container, with and without users of the pod's own, in a
  pod that restricted allows and in one that baseline allows. Each run generates them from tables, so every run has the same input.
- **Kubernetes' side.** Documents are split as kubectl splits them. Then come the API server's strict decoder; its defaults; a static pod's name,
  namespace, node and toleration; ` + "`ValidatePodCreate`" + ` with the options and capabilities of the kubelet. The errors of the validation are compared
  beside those of the decoder, although the API server would stop after the decoder. The rule that static pods may not refer to API objects is not
  applied. The defaults of a pod's own resources are 1.36's: since then an API server fills them in when it stores the pod, for static pods never.
- **podrun's side.** ` + "`manifest.Load`" + `, which validate, serve and once use.
- **Comparison.** For a manifest that both accept: the whole pod, without its status, podrun's annotations and a generated UID. For one that is
  refused: the set of field paths. If Kubernetes cannot decode a document, it names one field or none; then only that field must be among
  podrun's.
- **Not counted as differences.** podrun may refuse a field as not supported ([compat.md](compat.md)); Kubernetes' errors below that field are then
  ignored. After a typo, podrun may omit the errors that follow from it.
- **` + "`--pod-security`" + `.** podrun and Kubernetes' policy (k8s.io/pod-security-admission, its latest version) also judge each manifest at baseline and
  restricted, each for the pod that it decodes from the manifest. If podrun accepts what the policy refuses, for any one of the policy's reasons,
  that is never a difference on purpose. For each pod that podrun accepts at restricted, the oracle builds the containers' OCI specs with images of
  all kinds of users. In no spec may a process have a capability except NET_BIND_SERVICE, be the machine's root, gain privileges, lack seccomp, be in
  a namespace of the machine, or have devices, hooks or annotations.

## Differences on purpose

| Difference | Reason | Example |
| --- | --- | --- |
`
