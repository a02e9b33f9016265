package manifest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/defaults"
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/manifest/validate"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/workload"
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
	Policy *podsecurity.Policy
	// Rules say which fields that podrun ignores are accepted.
	Rules support.Rules
}

func (o LoadOptions) kind() SourceKind { return o.Kind.orFile() }

// Loaded is the content of a manifest.
type Loaded struct {
	Pods []*v1.Pod
	// GivenUIDs are the UIDs of those pods whose UID the manifest gives.
	GivenUIDs []pod.UID
	// Objects are the ConfigMaps and Secrets.
	Objects []Object
	// Workloads are the documents that pods are made from.
	Workloads []*workload.Workload
	// Warnings are about fields that are ignored, in the order of lines.
	Warnings []FieldError
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
	return strings.ReplaceAll(b.String()+": "+e.Message, "\n", `\n`) // a name may have one
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
	if l.moreWarnings {
		l.loaded.Warnings = append(l.loaded.Warnings, FieldError{
			File:    l.file(),
			Line:    l.loaded.Warnings[len(l.loaded.Warnings)-1].Line,
			Message: fmt.Sprintf("more is ignored or passed over than these %d warnings say", decode.MaxErrors),
		})
	}
	slices.SortStableFunc(l.loaded.Warnings, func(a, b FieldError) int { return cmp.Compare(a.Line, b.Line) })
	return l.loaded, nil
}

// emptyMessage returns the error message for a manifest without any document.
func emptyMessage(path string) string {
	if path == Stdin {
		return "is empty: there is no pod in it; is the command before the pipe right?"
	}
	return "is empty; remove the file to stop what it ran"
}

type loader struct {
	LoadOptions
	loaded Loaded
	seen   map[pod.Key]int // the lines of the pods so far
	// objects has the names of the ConfigMaps and Secrets so far.
	objects map[Name]bool
	// replicas is the number of pods of the workloads so far.
	replicas int
	errs     []FieldError
	// more is set if there are more than decode.MaxErrors errors, moreWarnings if there are more warnings.
	more, moreWarnings bool
}

func (l *loader) fail(e FieldError) {
	if l.full() {
		return
	}
	e.File = l.file()
	l.errs = append(l.errs, e)
}

func (l *loader) file() string {
	if l.Origin.Path == Stdin {
		return "stdin"
	}
	return l.Origin.Path
}

// warn adds warnings about fields of o, as long as there are not more than decode.MaxErrors.
func (l *loader) warn(o object, warnings []decode.Error, key pod.Key) {
	for _, w := range warnings {
		if len(l.loaded.Warnings) == decode.MaxErrors {
			l.moreWarnings = true
			return
		}
		path := o.at(w.Path)
		l.loaded.Warnings = append(l.loaded.Warnings, FieldError{
			File: l.file(), Line: o.doc.LineOf(path), Field: path, Message: w.Message, Key: key,
		})
	}
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

func (l *loader) pod(o object) {
	written := decode.Canonical(o.value)
	f := findings{errs: decode.Check(o.value, reflect.TypeFor[v1.Pod](), "", misplacedFields(""))}
	refused, ignored := support.Check(o.value)
	f.errs, f.warnings = append(f.errs, refused...), ignored
	p, err := decodePod(o.value)
	if err != nil {
		f.errs = append(f.errs, decode.Error{Message: err.Error()})
	}
	l.ignore(p, &f)
	defaults.Set(p)
	errs := withUnexplained(f.errs, validate.Pod(p, l.NodeName, l.fullName(p.Name)))
	f.drop(p)
	given := p.UID
	setIdentity(p, written, l.LoadOptions)
	annotateWarnings(p, f.warnings)
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
	if l.forbidden(o, "", p, key) {
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
	l.warn(o, f.warnings, key)
	if given != "" {
		l.loaded.GivenUIDs = append(l.loaded.GivenUIDs, given)
	}
}

// forbidden reports whether a pod requests more privileges than the policy allows; then it adds the
// errors. outer is what precedes the fields of the pod in the object.
func (l *loader) forbidden(o object, outer string, p *v1.Pod, key pod.Key) bool {
	all := l.Policy.Judge(p)
	for _, e := range all {
		l.failAt(o, outer+e.Field, e.ErrorBody(), key)
	}
	return len(all) > 0
}

// misplacedFields returns the locations where a field that is unknown in its place may belong, the
// likely ones first. outer is what precedes the fields of a pod in the object.
func misplacedFields(outer string) []decode.Location {
	return []decode.Location{
		{Path: outer + "spec", Type: reflect.TypeFor[v1.PodSpec]()},
		{Path: outer + "metadata", Type: reflect.TypeFor[metav1.ObjectMeta]()},
		{Path: outer + "spec.containers[0]", Type: reflect.TypeFor[v1.Container]()},
		{Path: outer + "spec.containers[0].securityContext", Type: reflect.TypeFor[v1.SecurityContext]()},
		{Path: outer + "spec.containers[0].resources", Type: reflect.TypeFor[v1.ResourceRequirements]()},
	}
}

// decodePod decodes a value that decode.Check has cleaned. An error means that decode.Check accepts
// more than the decoder.
func decodePod(value map[string]any) (*v1.Pod, error) {
	p := &v1.Pod{}
	return p, decode.Into(value, p)
}

// withUnexplained adds the errors in more that are not consequences of others in errs, until there
// are more than decode.MaxErrors.
func withUnexplained(errs []decode.Error, more field.ErrorList) []decode.Error {
	for _, e := range more {
		if len(errs) > decode.MaxErrors {
			break
		}
		if !explained(errs, e.Field) {
			errs = append(errs, decode.Error{Path: e.Field, Message: errtext.WithoutPattern(e.ErrorBody())})
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
