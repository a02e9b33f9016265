package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// report counts the verdicts, and tells the differences that are meant from others.
type report struct {
	manifests, bothTake, bothRefuse, unsupported int
	// used counts the manifests that show a meant difference, by its place in the table, and names one.
	used    []int
	example []string
	rest    []string
	// levels are the verdicts at each.
	levels map[string]*tally
}

func newReport() *report {
	r := &report{used: make([]int, len(meant)), example: make([]string, len(meant)), levels: map[string]*tally{}}
	for _, level := range levels {
		r.levels[string(level)] = &tally{}
	}
	return r
}

// excuse returns the place in the table of what explains a difference in podrun's verdict, or -1.
func excuse(d difference, podrun verdict) int {
	return slices.IndexFunc(meant, func(m meaning) bool { return m.explains(d, podrun) })
}

// add counts a manifest; false when its verdicts differ without a reason.
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

// stale are the lines of the table that nothing showed.
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
	fmt.Fprintf(out, "%6d  manifests\n%6d  taken by both, and the same pod\n%6d  refused by both, for the same fields\n%6d  refused by podrun alone, as not supported\n",
		r.manifests, r.bothTake, r.bothRefuse, r.unsupported)
	for _, level := range levels {
		fmt.Fprintf(out, "%s:\n%s", levelField(level), r.levels[string(level)])
	}
	fmt.Fprintf(out, "%6d  differences that are not meant\n", len(r.rest))
}

func (r *report) err() error {
	if len(r.rest) > 0 {
		return fmt.Errorf("%d verdicts differ; mend podrun, or give a reason in oracle/meant.go", len(r.rest))
	}
	if stale := r.stale(); len(stale) > 0 {
		return fmt.Errorf("nothing differs as oracle/meant.go says:\n%s", strings.Join(stale, "\n"))
	}
	return nil
}

// document is the table for people. It has no counts: they change with every field that podrun learns.
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

Written by ` + "`make oracle`" + `, which feeds some twenty-seven thousand manifests to podrun and to Kubernetes 1.37.2's own code, and fails when
anything differs that is not in the table below.

- **What is fed.** The project's fixtures (` + "`testdata/manifests`" + `); odd texts written by hand (` + "`oracle/oddities.go`" + `); a hundred spellings of a
  YAML scalar in each kind of field; edge values in every field of a Pod, found by reflection over Kubernetes' types, both in a full pod
  and in a minimal one; rules between fields (` + "`oracle/values.go`" + `); 400 combinations of edge values drawn with a fixed seed; and what the Pod
  Security Standards have an opinion of (` + "`oracle/restrictions.go`" + `), in each kind of container, with and without users of the pod's own, in a
  pod that restricted allows and in one that baseline allows. They are made in the run, from tables, and so are the same in every run.
- **Kubernetes' side.** Documents cut as kubectl cuts them; the API server's strict decoder; its defaults; a static pod's name, namespace,
  node and toleration; ` + "`ValidatePodCreate`" + ` with the options and capabilities of the kubelet. Beyond the decoder's errors, those of the
  validation are compared too, although the API server would stop. That static pods may not refer to API objects is not asked. The
  defaults of a pod's own resources are 1.36's: since then an API server fills them in when it stores the pod, for static pods never.
- **podrun's side.** ` + "`manifest.Load`" + `, which validate, serve and once use.
- **What is compared.** For a manifest that both take: the whole pod, without its status, its annotations by podrun and a UID that was
  made. For one that is refused: the set of field paths. Where Kubernetes cannot decode a document it names one field or none, and that
  one only must be among podrun's.
- **What is no difference.** That podrun refuses a field as not supported ([compat.md](compat.md)); Kubernetes' word on what is in that
  field is then passed over. And that podrun, having found a typo, is silent about what follows from it.
- **` + "`--pod-security`" + `.** Each manifest is also judged at baseline and restricted, by podrun and by Kubernetes' policy
  (k8s.io/pod-security-admission, its latest version) for the pods that each of the two makes of it. What the policy does not allow and
  podrun takes, for any one of the policy's reasons, is never a difference on purpose. And of each pod that podrun takes at restricted the
  containers' OCI specs are made, of images with users of all kinds: in none may a process have a capability but NET_BIND_SERVICE, be
  the machine's root, gain privileges, be without seccomp or in a namespace of the machine's, or have devices, hooks or annotations.

## Differences on purpose

| What | Why | For example |
| --- | --- | --- |
`
