package manifest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/manifest/validate"
	"podrun.io/podrun/internal/pod"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// LoadOptions are the inputs of Load besides the text of the manifest.
type LoadOptions struct {
	// Origin is part of the identity of pods without a metadata.uid. Error messages name its path.
	Origin Origin
	// Kind is the kind of Origin's source. The zero Kind is the kind of files.
	Kind SourceKind
	// NodeName, in lower case, is appended to the names of pods as a suffix.
	NodeName string
	// NoSuffix leaves the names of pods as the manifest has them.
	NoSuffix bool
	// Policy refuses pods that need more privileges than it allows; nil allows all pods.
	Policy *validate.Policy
}

func (o LoadOptions) kind() SourceKind { return o.Kind.orFile() }

// Loaded is the content of a manifest.
type Loaded struct {
	Pods []*v1.Pod
	// GivenUIDs are the UIDs of those pods whose UID the manifest gives.
	GivenUIDs []pod.UID
	// Objects are the ConfigMaps and Secrets.
	Objects []Object
}

// FieldError is one error in a manifest.
type FieldError struct {
	File string `json:"file"`
	// Line is 0 if it is not known.
	Line int `json:"line,omitempty"`
	// Field is the path of the field as Kubernetes writes it; empty if the error concerns the text
	// or the whole file.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Key is the pod that the error concerns, if that is known.
	Key pod.Key `json:"-"`
}

func (e FieldError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	return b.String() + ": " + e.Message
}

// InvalidError has all errors of a manifest, in the order of lines.
type InvalidError struct{ Errors []FieldError }

func (e *InvalidError) Error() string {
	lines := make([]string, 0, len(e.Errors))
	for _, one := range e.Errors {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Load decodes, defaults and validates the pods, ConfigMaps and Secrets of a manifest in YAML or
// JSON, with one document or several. Its error is always an *InvalidError, and with an error it
// returns nothing of the manifest. It does not set AnnotationSeen: see MarkSeen.
func Load(data []byte, o LoadOptions) (Loaded, error) {
	l := loader{LoadOptions: o, seen: map[pod.Key]int{}, objects: map[Name]bool{}}
	l.NodeName = strings.ToLower(l.NodeName)
	docs, errs := decode.Parse(data)
	for _, e := range errs {
		l.fail(FieldError{Line: e.Line, Field: e.Path, Message: e.Message})
	}
	if len(docs) == 0 && len(errs) == 0 {
		l.fail(FieldError{Message: emptyMessage(l.Origin.Path)})
	}
	for _, d := range docs {
		l.document(d)
	}
	if l.more {
		l.errs = append(l.errs, FieldError{
			File:    l.errs[0].File,
			Line:    l.errs[len(l.errs)-1].Line,
			Message: fmt.Sprintf("more is wrong than these %d errors", len(l.errs)),
		})
	}
	if len(l.errs) > 0 {
		slices.SortStableFunc(l.errs, func(a, b FieldError) int { return cmp.Compare(a.Line, b.Line) })
		return Loaded{}, &InvalidError{Errors: slices.Compact(l.errs)}
	}
	return l.loaded, nil
}

// emptyMessage returns the error message for a manifest without any document.
func emptyMessage(path string) string {
	if path == Stdin {
		return "is empty: there is no pod in it"
	}
	return "is empty; remove the file to stop what it ran"
}

type loader struct {
	LoadOptions
	loaded Loaded
	seen   map[pod.Key]int // the lines of the pods so far
	// objects has the names of the ConfigMaps and Secrets so far.
	objects map[Name]bool
	errs    []FieldError
	// more is set if there are more than decode.MaxErrors errors.
	more bool
}

func (l *loader) fail(e FieldError) {
	if l.full() {
		return
	}
	e.File = l.Origin.Path
	if e.File == Stdin {
		e.File = "stdin"
	}
	l.errs = append(l.errs, e)
}

// full reports whether there are decode.MaxErrors errors already. It then sets more, so it is
// called only to add one.
func (l *loader) full() bool {
	l.more = l.more || len(l.errs) >= decode.MaxErrors
	return l.more
}

// object is a decoded object with its path in its document.
type object struct {
	doc   *decode.Document
	path  string
	value map[string]any
}

// at returns the path of one of the object's fields in the document.
func (o object) at(field string) string {
	return strings.TrimPrefix(strings.TrimSuffix(o.path+"."+field, "."), ".")
}

func (l *loader) failAt(o object, field, message string, key pod.Key) {
	if l.full() {
		return
	}
	path := o.at(field)
	l.fail(FieldError{Line: o.doc.LineOf(path), Field: path, Message: message, Key: key})
}

func (l *loader) document(d *decode.Document) {
	value, ok := d.Value.(map[string]any)
	o := object{doc: d, value: value}
	if !ok {
		l.failAt(o, "", "is not an object with apiVersion and kind", pod.Key{})
		return
	}
	switch kind, ok := l.kind(o, "Pod", "PodList", "List", KindConfigMap, KindSecret); {
	case !ok:
	case kind == "Pod":
		l.pod(o)
	case kind == KindConfigMap || kind == KindSecret:
		l.object(o, kind)
	default:
		l.list(o, kind)
	}
}

// kind returns the kind of an object and whether it is one of kinds, with apiVersion v1; otherwise
// it adds an error.
func (l *loader) kind(o object, kinds ...string) (string, bool) {
	good := true
	fail := func(field, format string, args ...any) {
		l.failAt(o, field, fmt.Sprintf(format, args...), pod.Key{})
		good = false
	}
	kind, isString := o.value["kind"].(string)
	version, _ := o.value["apiVersion"].(string)
	switch {
	case o.value["kind"] == nil || isString && kind == "":
		fail("kind", "Required value: one of %s", strings.Join(kinds, ", "))
	case !slices.Contains(kinds, kind):
		fail("kind", "Unsupported value: %s: supported values: %s",
			decode.Canonical(o.value["kind"]), strings.Join(kinds, ", "))
		return "", false
	}
	switch {
	case o.value["apiVersion"] == nil || o.value["apiVersion"] == "":
		fail("apiVersion", "Required value: v1")
	case version != "v1":
		fail("apiVersion", "Unsupported value: %s: supported values: v1", decode.Canonical(o.value["apiVersion"]))
	}
	return kind, good
}

// listType has the fields of a PodList or List.
type listType struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           []any           `json:"items"`
}

func (l *loader) list(o object, kind string) {
	for _, e := range decode.Check(o.value, reflect.TypeFor[listType](), o.path, nil) {
		l.failAt(o, e.Path, e.Message, pod.Key{})
	}
	items, _ := o.value["items"].([]any)
	for i, item := range items {
		one := object{doc: o.doc, path: o.at("items[" + strconv.Itoa(i) + "]")}
		value, ok := item.(map[string]any)
		if !ok {
			l.failAt(one, "", "is not an object", pod.Key{})
			continue
		}
		one.value = value
		// The items of a PodList need no kind and apiVersion.
		if kind == "PodList" && value["kind"] == nil && value["apiVersion"] == nil {
			l.pod(one)
			continue
		}
		kinds := []string{"Pod"}
		if kind == "List" {
			kinds = []string{"Pod", KindConfigMap, KindSecret}
		}
		switch kind, ok := l.kind(one, kinds...); {
		case !ok:
		case kind == "Pod":
			l.pod(one)
		default:
			l.object(one, kind)
		}
	}
}

func (l *loader) pod(o object) {
	written := decode.Canonical(o.value)
	errs := decode.Check(o.value, reflect.TypeFor[v1.Pod](), "", misplacedFields())
	errs = append(errs, support.Check(o.value)...)
	p, err := decodePod(o.value)
	if err != nil {
		errs = append(errs, decode.Error{Message: err.Error()})
	}
	setDefaults(p)
	errs = withUnexplained(errs, validate.Pod(p, l.NodeName, l.fullName(p.Name)))
	given := p.UID
	setIdentity(p, written, l.LoadOptions)
	key := pod.KeyOf(p)
	if p.Name == "" || p.Namespace == "" {
		key = pod.Key{}
	}
	for _, e := range errs {
		l.failAt(o, e.Path, e.Message, key)
	}
	if len(errs) > 0 {
		return
	}
	if forbidden := l.Policy.Judge(p); len(forbidden) > 0 {
		for _, e := range forbidden {
			l.failAt(o, e.Field, e.ErrorBody(), key)
		}
		return
	}
	line := o.doc.LineOf(o.at("metadata.name"))
	if first, twice := l.seen[key]; twice {
		l.failAt(o, "metadata.name",
			fmt.Sprintf("Duplicate value: %q: the pod at line %d has the same name", p.Name, first), key)
		return
	}
	l.seen[key] = line
	l.loaded.Pods = append(l.loaded.Pods, p)
	if given != "" {
		l.loaded.GivenUIDs = append(l.loaded.GivenUIDs, given)
	}
}

// misplacedFields returns the locations where a field that is unknown in its place may belong, the
// likely ones first.
func misplacedFields() []decode.Location {
	return []decode.Location{
		{Path: "spec", Type: reflect.TypeFor[v1.PodSpec]()},
		{Path: "metadata", Type: reflect.TypeFor[metav1.ObjectMeta]()},
		{Path: "spec.containers[0]", Type: reflect.TypeFor[v1.Container]()},
		{Path: "spec.containers[0].securityContext", Type: reflect.TypeFor[v1.SecurityContext]()},
		{Path: "spec.containers[0].resources", Type: reflect.TypeFor[v1.ResourceRequirements]()},
	}
}

// decodePod decodes a value that decode.Check has cleaned. An error means that decode.Check accepts
// more than the decoder.
func decodePod(value map[string]any) (*v1.Pod, error) {
	p := &v1.Pod{}
	return p, decodeInto(value, p)
}

// withUnexplained adds the errors in more that are not consequences of others in errs, until there
// are more than decode.MaxErrors.
func withUnexplained(errs []decode.Error, more field.ErrorList) []decode.Error {
	for _, e := range more {
		if len(errs) > decode.MaxErrors {
			break
		}
		if !explained(errs, e.Field) {
			errs = append(errs, decode.Error{Path: e.Field, Message: e.ErrorBody()})
		}
	}
	return errs
}

// explained reports whether an error at path is a consequence of one in errs, which concerns the
// same field or one around it.
func explained(errs []decode.Error, path string) bool {
	for _, e := range errs {
		if e.Path != "" && within(path, e.Path) || e.Meant != "" && within(path, e.Meant) {
			return true
		}
	}
	return false
}

// within reports whether path is outer or a field below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
