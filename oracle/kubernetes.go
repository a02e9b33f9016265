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
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const nodeName = "node1"

// finding is one thing that a judge has against a manifest.
type finding struct {
	Field   string `json:"field"`
	Message string `json:"message"`
	// Refused: podrun does not support the field.
	Refused bool `json:"refused,omitempty"`
	// Strict: Kubernetes' decoder says it; the API server then looks no further.
	Strict bool `json:"-"`
	// Stop: Kubernetes cannot decode the document, and so cannot find what else is wrong.
	Stop bool `json:"-"`
}

// verdict is what a judge makes of a manifest: errors or pods.
type verdict struct {
	Name   string            `json:"name"`
	Errors []finding         `json:"errors"`
	Pods   []json.RawMessage `json:"pods"`
	// Levels has what the judge has against the manifest at each level of the Pod Security Standards: podrun all that
	// is wrong with it, Kubernetes what its policy does not allow.
	Levels map[string][]finding `json:"levels"`
	// Escapes are podrun's alone: what of the specs of the containers is not restricted, though the level is.
	Escapes []string `json:"escapes"`
}

// kubernetes judges as the API server and the kubelet do: documents cut as kubectl cuts them, decoded
// strictly, defaulted, given a static pod's identity, and validated.
type kubernetes struct {
	yaml, json runtime.Decoder
	policy     policy.Evaluator
}

func newKubernetes() (kubernetes, error) {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	// An API server of 1.37 completes a pod's own requests and limits when it stores it, and for a static pod nobody
	// does. podrun completes requests as 1.36 did.
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.PodLevelResourcesFixDefaulting) + "=false"); err != nil {
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

// documents cuts a file as kubectl does.
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
		v.Errors = append(v.Errors, finding{Field: "kind", Message: fmt.Sprintf("invalid pod: %T", object), Stop: true})
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

// What Kubernetes' decoders say of a path.
var (
	fieldSaid = regexp.MustCompile(`^(?:unknown|duplicate) field "(.*)"$`)
	keySaid   = regexp.MustCompile(`key "(.*)" already set in map$`)
	goField   = regexp.MustCompile(`into Go struct field \w+\.([\w.]*\w) of type`)
)

// strictFinding is, as to its path, what the strict decoder says.
func strictFinding(message string) finding {
	f := finding{Message: message, Strict: true}
	if m := fieldSaid.FindStringSubmatch(message); m != nil {
		f.Field = m[1]
	} else if m := keySaid.FindStringSubmatch(message); m != nil {
		f.Field = anyField + m[1]
	}
	return f
}

// anyField, before a name, says that only the last element of the path is known.
const anyField = "…."

func stopFinding(message string) finding {
	f := finding{Message: message, Stop: true}
	if m := goField.FindStringSubmatch(message); m != nil {
		f.Field = anyField + m[1][strings.LastIndex(m[1], ".")+1:]
	}
	return f
}

// pod gives a pod a static pod's identity, and validates it.
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

// levels are those of the Pod Security Standards that refuse something.
var levels = []api.Level{api.LevelBaseline, api.LevelRestricted}

// restrict adds what the newest version of each level does not allow the pod, once.
func (k kubernetes) restrict(v *verdict, p *v1.Pod) {
	for _, level := range levels {
		for _, r := range k.policy.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &p.ObjectMeta, &p.Spec) {
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

// levelField stands for the field of what a level does not allow.
func levelField(level api.Level) string { return "--pod-security " + string(level) }
