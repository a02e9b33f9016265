package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The values of difference.By: the one of podrun and Kubernetes that reports the error while the
// other does not, or ofPod for a difference between the pods of a manifest that both accept.
const (
	ofPodrun     = "podrun"
	ofKubernetes = "Kubernetes"
	ofPod        = "pod"
)

var (
	inItems    = regexp.MustCompile(`^items\[\d+\]\.`)
	indices    = regexp.MustCompile(`\[[^\]]*\]`)
	didYouMean = regexp.MustCompile(`did you mean "?([^"?]+)"?\?`)
	// Kubernetes' errors omit these indices.
	mountIndex = regexp.MustCompile(
		`\.volumeMounts\[\d+\](\.(?:recursiveReadOnly|mountPropagation|subPath|subPathExpr))`)
	itemIndex = regexp.MustCompile(`\.downwardAPI\.items\[\d+\]`)
	madeUID   = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// difference is one difference between podrun's and Kubernetes' verdict.
type difference struct {
	By      string
	Field   string
	Message string
}

func (d difference) String() string { return fmt.Sprintf("%s: %s: %s", d.By, d.Field, d.Message) }

// compare returns the differences between two verdicts. That podrun refuses a field as unsupported
// is no difference, and Kubernetes' errors within such a field are ignored.
func compare(podrun, kube verdict) []difference {
	var refused, own []finding
	for _, e := range podrun.Errors {
		e.Field = outsideItems(e.Field)
		if e.Refused {
			refused = append(refused, e)
		} else {
			own = append(own, e)
		}
	}
	if len(podrun.Errors) == 0 && len(kube.Errors) == 0 {
		return comparePods(podrun.Pods, kube.Pods)
	}
	stops := slices.ContainsFunc(kube.Errors, func(f finding) bool { return f.Stop })
	strict := slices.ContainsFunc(kube.Errors, func(f finding) bool { return f.Strict })
	var found []difference
	for _, e := range kube.Errors {
		e.Field = outsideItems(e.Field)
		switch {
		case covered(e, refused), slices.ContainsFunc(own, func(o finding) bool { return same(o.Field, e.Field) }):
		case e.Stop && e.Field == "" && len(podrun.Errors) > 0:
		case !e.Stop && !e.Strict && (strict || typed(own)) && explained(e, own):
		default:
			found = append(found, difference{ofKubernetes, e.Field, e.Message})
		}
	}
	for _, o := range own {
		known := slices.ContainsFunc(kube.Errors, func(e finding) bool { return same(o.Field, outsideItems(e.Field)) })
		if !known && !stops {
			found = append(found, difference{ofPodrun, o.Field, o.Message})
		}
	}
	return found
}

// outsideItems returns a path without the item of a List in front.
func outsideItems(path string) string { return inItems.ReplaceAllString(path, "") }

// same reports whether two paths name the same field. field is podrun's; as is Kubernetes' and may
// be incomplete, see anyField.
func same(field, as string) bool {
	if asKubernetes(field) == as {
		return true
	}
	last, ok := strings.CutPrefix(as, anyField)
	if !ok {
		return field == as
	}
	return field == last || strings.HasSuffix(field, "."+last) || strings.HasSuffix(field, "["+last+"]") ||
		strings.HasSuffix(indices.ReplaceAllString(field, ""), "."+last)
}

// asKubernetes returns a path in Kubernetes' spelling.
func asKubernetes(field string) string {
	return itemIndex.ReplaceAllString(mountIndex.ReplaceAllString(field, ".volumeMounts$1"), ".downwardAPI")
}

// covered reports whether a finding concerns a field that podrun refuses as unsupported.
func covered(e finding, refused []finding) bool {
	return slices.ContainsFunc(refused, func(r finding) bool {
		return within(e.Field, r.Field) || within(e.Field, asKubernetes(r.Field)) ||
			strings.HasPrefix(e.Field, anyField)
	})
}

// typed reports whether podrun found a field of a wrong type, which Kubernetes may decode to
// another value.
func typed(own []finding) bool {
	return slices.ContainsFunc(own, func(o finding) bool { return strings.HasPrefix(o.Message, "must be a") })
}

// explained reports whether an error is a consequence of another that podrun reports: of the same
// field or one around it, or of an unknown field that was probably meant to be it.
func explained(e finding, own []finding) bool {
	return slices.ContainsFunc(own, func(o finding) bool {
		meant := didYouMean.FindStringSubmatch(o.Message)
		if meant != nil && !strings.Contains(meant[1], ".") {
			meant[1] = strings.TrimPrefix(o.Field[:max(0, strings.LastIndex(o.Field, "."))]+"."+meant[1], ".")
		}
		return within(e.Field, o.Field) || meant != nil && within(e.Field, meant[1])
	})
}

// within reports whether path is outer or a field below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && outer != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func comparePods(podrun, kube []json.RawMessage) []difference {
	if len(podrun) != len(kube) {
		return []difference{{
			ofPod, "", fmt.Sprintf("podrun makes %d pods of it, Kubernetes %d", len(podrun), len(kube)),
		}}
	}
	var found []difference
	for i := range podrun {
		p, err := normal(podrun[i])
		if err != nil {
			found = append(found, difference{ofPod, "", "podrun's pod: " + err.Error()})
			continue
		}
		k, err := normal(kube[i])
		if err != nil {
			found = append(found, difference{ofPod, "", "Kubernetes' pod: " + err.Error()})
			continue
		}
		found = append(found, unlike(p, k, "")...)
	}
	return found
}

// normal returns a pod as a JSON value without the parts that must differ: its status, podrun's and
// the kubelet's annotations, and a generated UID.
func normal(text []byte) (any, error) {
	var p v1.Pod
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, err
	}
	if madeUID.MatchString(string(p.UID)) {
		p.UID = ""
	}
	p.Status, p.TypeMeta.Kind, p.TypeMeta.APIVersion = v1.PodStatus{}, "Pod", "v1"
	maps.DeleteFunc(p.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "podrun.io/manifest") || strings.HasPrefix(key, "kubernetes.io/config.") ||
			key == "podrun.io/workload" || key == "podrun.io/after"
	})
	out, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var value any
	err = json.Unmarshal(out, &value)
	return value, err
}

// unlike returns the fields in which two JSON values differ.
func unlike(a, b any, path string) []difference {
	x, isMap := a.(map[string]any)
	y, alsoMap := b.(map[string]any)
	if isMap && alsoMap {
		keys := maps.Clone(x)
		maps.Copy(keys, y)
		var found []difference
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			found = append(found, unlike(x[key], y[key], strings.TrimPrefix(path+"."+key, "."))...)
		}
		return found
	}
	list, isList := a.([]any)
	other, alsoList := b.([]any)
	if isList && alsoList && len(list) == len(other) {
		var found []difference
		for i := range list {
			found = append(found, unlike(list[i], other[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
		return found
	}
	one, _ := json.Marshal(a)
	two, _ := json.Marshal(b)
	if bytes.Equal(one, two) {
		return nil
	}
	return []difference{{ofPod, path, fmt.Sprintf("%s in podrun, %s in Kubernetes", one, two)}}
}
