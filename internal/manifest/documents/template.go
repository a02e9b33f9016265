package documents

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/workload"
)

// Identity returns the manifest that a pod of a workload would have by itself, and what else of the
// workload makes new containers necessary when it changes. The UIDs of the pods are derived from it.
func Identity(value map[string]any) any {
	outer, _ := value["metadata"].(map[string]any)
	spec, _ := value["spec"].(map[string]any)
	of := spec // what has the template
	job, _ := spec["jobTemplate"].(map[string]any)
	if value["kind"] == string(workload.CronJob) {
		of, _ = job["spec"].(map[string]any)
	}
	template, _ := of["template"].(map[string]any)
	inner, _ := template["metadata"].(map[string]any)
	meta := map[string]any{}
	for key, from := range map[string]map[string]any{
		"name": outer, "namespace": outer, "labels": inner, "annotations": inner,
	} {
		if from[key] != nil {
			meta[key] = from[key]
		}
	}
	p := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
	switch value["kind"] {
	case string(workload.CronJob): // its Jobs stay what they were made from
		return []any{p, value["kind"], job}
	case string(workload.Job): // what Kubernetes lets nobody change of a Job
		return []any{p, value["kind"], spec["completions"], spec["completionMode"], spec["podFailurePolicy"],
			spec["backoffLimitPerIndex"], spec["successPolicy"]}
	}
	if spec["volumeClaimTemplates"] == nil && spec["serviceName"] == nil {
		return p
	}
	return []any{p, spec["serviceName"], spec["volumeClaimTemplates"]}
}

// OutOfTemplate returns the errors of the template's pod with the paths that they have in the workload,
// but for those about its name that are among the errors of the workload.
// path is that of the template.
func OutOfTemplate(path string, errs, ofWorkload field.ErrorList) field.ErrorList {
	var all field.ErrorList
	for _, e := range errs {
		switch e.Field {
		case "metadata.name", "metadata.namespace":
			if slices.ContainsFunc(ofWorkload, func(o *field.Error) bool { return o.Field == e.Field }) {
				continue
			}
		default:
			e.Field = path + "." + e.Field
		}
		all = append(all, e)
	}
	return all
}
