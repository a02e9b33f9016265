package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // the scheme's types and defaults
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const nodeName = "node1"

// finding is one error in a manifest.
type finding struct {
	Field   string `json:"field"`
	Message string `json:"message"`
	// Refused is set if podrun does not support the field.
	Refused bool `json:"refused,omitempty"`
	// Strict is set if the error is one of Kubernetes' strict decoder, after which the API server
	// does not validate.
	Strict bool `json:"-"`
	// Stop is set if Kubernetes cannot decode the document, and so cannot find other errors in it.
	Stop bool `json:"-"`
}

// verdict is the result of podrun or of Kubernetes for a manifest: errors or pods.
type verdict struct {
	Name   string            `json:"name"`
	Errors []finding         `json:"errors"`
	Pods   []json.RawMessage `json:"pods"`
	// Levels has the errors at each level of the Pod Security Standards: podrun's are all errors in
	// the manifest, Kubernetes' are only the violations of its policy.
	Levels map[string][]finding `json:"levels"`
	// Escapes are set by podrun only: the privileges in the OCI specs of containers that exceed
	// level restricted although that level accepts the pod.
	Escapes []string `json:"escapes"`
}

// kubernetes loads manifests as the API server and the kubelet do: documents are split as by
// kubectl, decoded strictly, defaulted, given the identity of a static pod, and validated.
type kubernetes struct {
	yaml, json runtime.Decoder
	policy     policy.Evaluator
}

func newKubernetes() (kubernetes, error) {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	// The API server of 1.37 completes pod-level requests and limits when it stores a pod, so those
	// of a static pod are never completed. podrun completes requests as 1.36 did.
	if err := utilfeature.DefaultMutableFeatureGate.Set(
		string(features.PodLevelResourcesFixDefaulting) + "=false"); err != nil {
		return kubernetes{}, err
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return kubernetes{}, err
	}
	scheme := legacyscheme.Scheme
	decoder := func(yaml bool) runtime.Decoder {
		serializer := kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme, scheme,
			kubejson.SerializerOptions{Yaml: yaml, Strict: true})
		return legacyscheme.Codecs.DecoderToVersion(serializer, runtime.InternalGroupVersioner)
	}
	return kubernetes{yaml: decoder(true), json: decoder(false), policy: evaluator}, nil
}

func (k kubernetes) judge(c manifest) verdict {
	v := verdict{Name: c.Name, Levels: map[string][]finding{}}
	docs, err := documents(c.Data)
	if err != nil {
		v.Errors = append(v.Errors, finding{Message: err.Error(), Stop: true})
	}
	for _, doc := range docs {
		k.document(&v, doc)
	}
	if len(docs) == 0 && err == nil {
		v.Errors = append(v.Errors, finding{Message: "no objects passed", Stop: true})
	}
	return v
}

// documents splits a file into documents as kubectl does.
func documents(data []byte) ([][]byte, error) {
	var docs [][]byte
	if _, _, isJSON := utilyaml.GuessJSONStream(bytes.NewReader(data), 4096); isJSON {
		decoder := json.NewDecoder(bytes.NewReader(data))
		for {
			var raw json.RawMessage
			switch err := decoder.Decode(&raw); {
			case errors.Is(err, io.EOF):
				return docs, nil
			case err == nil:
				docs = append(docs, raw)
			case len(docs) == 0:
				return yamlDocuments(data) // braces are YAML too
			default:
				return docs, err
			}
		}
	}
	return yamlDocuments(data)
}

func yamlDocuments(data []byte) ([][]byte, error) {
	var docs [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return docs, err
		}
		if text, err := utilyaml.ToJSON(doc); err == nil && string(bytes.TrimSpace(text)) == "null" {
			continue
		}
		docs = append(docs, doc)
	}
}

func (k kubernetes) document(v *verdict, doc []byte) {
	object, ok := k.decode(v, doc)
	if !ok {
		return
	}
	switch o := object.(type) {
	case *core.Pod:
		k.pod(v, o)
	case *core.PodList:
		for i := range o.Items {
			k.pod(v, &o.Items[i])
		}
	case *core.PersistentVolumeClaim:
		k.claim(v, o)
	case *core.PersistentVolume:
		k.volume(v, o)
	case *storage.StorageClass:
		k.class(v, o)
	case *storage.CSIDriver:
		k.driver(v, o)
	case *core.List:
		for _, item := range o.Items {
			raw, ok := item.(*runtime.Unknown)
			if !ok {
				v.Errors = append(v.Errors, finding{Message: fmt.Sprintf("a List's item is %T", item), Stop: true})
				continue
			}
			if pod, ok := k.decode(v, raw.Raw); !ok {
				continue
			} else if pod, ok := pod.(*core.Pod); ok {
				k.pod(v, pod)
			} else {
				v.Errors = append(v.Errors, finding{Field: "kind", Message: "not a Pod", Stop: true})
			}
		}
	default:
		if !k.workload(v, object) {
			v.Errors = append(v.Errors, finding{Field: "kind", Message: fmt.Sprintf("invalid pod: %T", object), Stop: true})
		}
	}
}

func (k kubernetes) decode(v *verdict, doc []byte) (runtime.Object, bool) {
	decoder := k.yaml
	if json.Valid(doc) {
		decoder = k.json
	}
	object, _, err := decoder.Decode(doc, nil, nil)
	strict, isStrict := runtime.AsStrictDecodingError(err)
	switch {
	case err == nil:
	case isStrict && object != nil:
		for _, e := range strict.Errors() {
			v.Errors = append(v.Errors, strictFinding(e.Error()))
		}
	default:
		v.Errors = append(v.Errors, stopFinding(err.Error()))
		return nil, false
	}
	return object, true
}

// The forms in which Kubernetes' decoders name a field in an error.
var (
	fieldSaid = regexp.MustCompile(`^(?:unknown|duplicate) field "(.*)"$`)
	keySaid   = regexp.MustCompile(`key "(.*)" already set in map$`)
	goField   = regexp.MustCompile(`into Go struct field \w+\.([\w.]*\w) of type`)
)

// strictFinding returns the finding for an error of the strict decoder, with the path that the
// error names.
func strictFinding(message string) finding {
	f := finding{Message: message, Strict: true}
	if m := fieldSaid.FindStringSubmatch(message); m != nil {
		f.Field = m[1]
	} else if m := keySaid.FindStringSubmatch(message); m != nil {
		f.Field = anyField + m[1]
	}
	return f
}

// anyField is the prefix of a path of which only the last element is known.
const anyField = "…."

func stopFinding(message string) finding {
	f := finding{Message: message, Stop: true}
	if m := goField.FindStringSubmatch(message); m != nil {
		f.Field = anyField + m[1][strings.LastIndex(m[1], ".")+1:]
	}
	return f
}

// pod sets the identity of a static pod and validates it.
func (k kubernetes) pod(v *verdict, p *core.Pod) {
	if p.Name == "" {
		v.Errors = append(v.Errors, finding{Field: "metadata.name", Message: "name is needed for the pod"})
	} else {
		p.Name += "-" + nodeName
	}
	if p.Namespace == "" {
		p.Namespace = v1.NamespaceDefault
	}
	p.Spec.NodeName = nodeName
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, nil, &p.ObjectMeta, nil)
	for _, e := range validation.ValidatePodCreate(p, opts) {
		if p.Name == "" && e.Field == "metadata.name" {
			continue
		}
		v.Errors = append(v.Errors, finding{Field: e.Field, Message: e.ErrorBody()})
	}
	helper.AddOrUpdateTolerationInPod(p, &core.Toleration{Operator: "Exists", Effect: core.TaintEffectNoExecute})
	var out v1.Pod
	if err := corev1.Convert_core_Pod_To_v1_Pod(p, &out, nil); err != nil {
		v.Errors = append(v.Errors, finding{Message: err.Error(), Stop: true})
		return
	}
	k.restrict(v, &out)
	text, err := json.Marshal(out)
	if err != nil {
		v.Errors = append(v.Errors, finding{Message: err.Error(), Stop: true})
	}
	v.Pods = append(v.Pods, text)
}

// levels are the levels of the Pod Security Standards that refuse pods.
var levels = []api.Level{api.LevelBaseline, api.LevelRestricted}

// restrict adds the pod's violations of the newest version of each level, without duplicates.
func (k kubernetes) restrict(v *verdict, p *v1.Pod) {
	for _, level := range levels {
		for _, r := range k.policy.EvaluatePod(
			api.LevelVersion{Level: level, Version: api.LatestVersion()}, &p.ObjectMeta, &p.Spec) {
			if r.Allowed {
				continue
			}
			f := finding{Field: levelField(level), Message: r.ForbiddenReason}
			if r.ForbiddenDetail != "" {
				f.Message += " (" + r.ForbiddenDetail + ")"
			}
			if !slices.Contains(v.Levels[string(level)], f) {
				v.Levels[string(level)] = append(v.Levels[string(level)], f)
			}
		}
	}
}

// levelField returns the text that is used as the field of a violation of a level.
func levelField(level api.Level) string { return "--pod-security " + string(level) }
