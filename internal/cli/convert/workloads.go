package convert

import (
	"fmt"
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/minimal"
)

// workloads are the kinds that podrun runs itself. They stay what they are.
var workloads = map[string]reflect.Type{
	"Deployment": reflect.TypeFor[appsv1.Deployment](), "ReplicaSet": reflect.TypeFor[appsv1.ReplicaSet](),
	"StatefulSet": reflect.TypeFor[appsv1.StatefulSet](), "DaemonSet": reflect.TypeFor[appsv1.DaemonSet](),
	"Job": reflect.TypeFor[batchv1.Job](), "CronJob": reflect.TypeFor[batchv1.CronJob](),
}

// templateOf returns what has the pod template of a workload in its spec, and the path of that spec with a dot.
func templateOf(kind string, object map[string]any) (of map[string]any, path string) {
	if kind == "CronJob" {
		return at(object, "spec", "jobTemplate"), "spec.jobTemplate.spec."
	}
	return object, "spec."
}

// keep converts a workload that podrun has: without what an API server and its controllers have added, and without what
// podrun refuses.
func (c *converter) keep(name, kind string, object map[string]any) {
	from, path := templateOf(kind, object)
	if at(from, "spec", "template") == nil {
		c.fail(name, fmt.Errorf("has no pod template"))
		return
	}
	delete(object, "status")
	check(c, name, "", object, workloads[kind])
	template := c.template(name, text(at(object, "metadata"), "name"), path, from)
	if template == nil {
		return
	}
	typed := reflect.New(workloads[kind]).Interface()
	tree := map[string]any{}
	err := into(object, typed)
	if err == nil { // without the fields that are not known
		err = into(typed, &tree)
	}
	if err != nil {
		c.fail(name, err)
		return
	}
	tree["apiVersion"], tree["kind"] = object["apiVersion"], kind
	delete(tree, "status")
	c.dropMetadata(name, at(tree, "metadata"))
	dropController(at(tree, "metadata"))
	delete(at(tree, "metadata", "annotations"), "deployment.kubernetes.io/revision")
	delete(at(tree, "metadata", "annotations"), "deprecated.daemonset.template.generation")
	to, _ := templateOf(kind, tree)
	dropController(at(to, "metadata"))
	delete(at(to, "metadata"), "creationTimestamp")
	spec := at(to, "spec")
	spec["template"] = template
	delete(at(spec, "selector", "matchLabels"), podTemplateHash)
	c.dropRefused(name, kind, path, spec)
	for _, of := range []map[string]any{at(tree, "metadata"), spec, to} {
		for field, value := range of {
			if fields, is := value.(map[string]any); is && len(fields) == 0 { // is none
				delete(of, field)
			}
		}
	}
	c.addTree(name, tree)
}

// template returns the pod template of a workload as it stays; nil if it cannot be read. named is the workload's name,
// and of what has the template in its spec, whose path is path.
func (c *converter) template(name, named, path string, of map[string]any) map[string]any {
	from := at(of, "spec", "template")
	metadata := map[string]any{}
	for key, value := range at(from, "metadata") {
		metadata[key] = value
	}
	dropController(metadata)
	metadata["name"] = named
	p := c.podOf(name, path+"template.", map[string]any{"metadata": metadata, "spec": from["spec"]})
	if p == nil {
		return nil
	}
	p.APIVersion, p.Kind = "v1", "Pod"
	made, err := minimal.Manifest(p, true)
	if err != nil {
		c.fail(name, err)
		return nil
	}
	docs, errs := decode.Parse(made)
	if len(errs) > 0 || len(docs) != 1 {
		c.fail(name, fmt.Errorf("its pod template cannot be read"))
		return nil
	}
	pod, _ := docs[0].Value.(map[string]any)
	template := map[string]any{"spec": pod["spec"]}
	own := at(pod, "metadata")
	delete(own, "name")
	delete(own, "namespace")
	if len(own) > 0 {
		template["metadata"] = own
	}
	return template
}

// dropController removes the labels that the Job controller adds.
func dropController(metadata map[string]any) {
	labels := at(metadata, "labels")
	for _, label := range []string{"controller-uid", "job-name"} {
		delete(labels, label)
		delete(labels, "batch.kubernetes.io/"+label)
	}
	delete(labels, podTemplateHash)
}

// podTemplateHash is the label by which a Deployment tells its ReplicaSets apart.
const podTemplateHash = "pod-template-hash"

// dropRefused removes the fields of what has a workload's template that podrun refuses or that have no effect. path is
// the path of spec.
func (c *converter) dropRefused(name, kind, path string, spec map[string]any) {
	drop := func(field, why string) {
		if _, is := spec[field]; is {
			c.drop(name, path+field, why)
			delete(spec, field)
		}
	}
	if text(at(spec, "updateStrategy"), "type") == "OnDelete" {
		drop("updateStrategy", "OnDelete has no effect: an edit replaces the pods one after the other")
	}
	// That an API server has written the default, 0, says nothing about what the author wanted.
	if rolling := at(spec, "updateStrategy", "rollingUpdate"); kind == "StatefulSet" && rolling["partition"] != nil {
		if partition := fmt.Sprint(rolling["partition"]); partition != "0" {
			c.drop(name, path+"updateStrategy.rollingUpdate.partition", "all pods get the template")
		}
		delete(rolling, "partition")
		if len(rolling) == 0 {
			delete(at(spec, "updateStrategy"), "rollingUpdate")
		}
	}
	if paused, _ := spec["paused"].(bool); paused {
		drop("paused", "podrun applies each edit")
	}
	for _, when := range []string{"whenDeleted", "whenScaled"} {
		if of := text(at(spec, "persistentVolumeClaimRetentionPolicy"), when); of != "" && of != "Retain" {
			drop("persistentVolumeClaimRetentionPolicy", "podrun volumes rm removes a claim")
		}
	}
	claims, _ := spec["volumeClaimTemplates"].([]any)
	for _, one := range claims {
		claim, _ := one.(map[string]any)
		delete(claim, "status")
		delete(at(claim, "metadata"), "creationTimestamp")
	}
	if !strings.HasSuffix(kind, "Job") {
		return
	}
	if manual, _ := spec["manualSelector"].(bool); manual {
		drop("selector", "the pods of a Job are found by its name")
		drop("manualSelector", "the pods of a Job are found by its name")
	}
	delete(spec, "selector") // the API server's
	delete(spec, "manualSelector")
	if by, _ := spec["managedBy"].(string); by == "kubernetes.io/job-controller" {
		delete(spec, "managedBy")
	}
	drop("managedBy", "podrun alone runs Jobs here")
	drop("scheduling", "there is no scheduler that would place pods together")
}
