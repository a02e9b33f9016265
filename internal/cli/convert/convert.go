// Package convert makes manifests for podrun of other documents: of pods as an API server shows them,
// of Deployments and other workloads, and of compose files. It names everything that it leaves out.
//
// The package does not decide whether podrun can use what it makes. Begin reading at File.
package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/minimal"
	"podrun.io/podrun/internal/sys/excerpt"
)

// Options are the surroundings of a file.
type Options struct {
	// Dir is the directory to which paths in compose files are relative.
	Dir string
	// Env returns a variable that a compose file refers to.
	Env func(name string) (value string, is bool)
	// ReadFile reads a file that a compose file names.
	ReadFile func(path string) ([]byte, error)
}

// Result is what was made of a file.
type Result struct {
	// Documents are in YAML.
	Documents [][]byte
	// Dropped are the things that were left out, or that are not as they were; each names the object
	// and the field.
	Dropped []string
	// Failed are the objects of which nothing could be made although something should have been, and the fields whose
	// values cannot be read: the documents do not have them.
	Failed []string
}

const (
	// maxDocuments limits what is made of a file.
	maxDocuments = 10_000
	// MaxText limits, in bytes, a file, what its variables become, and the files together that it names.
	MaxText = decode.MaxSize
	// maxNesting limits how deep variables are in the defaults of others.
	maxNesting = 100
	// maxName limits, in bytes, the name of an object or a field in a message. There may be a message for each of
	// many fields: with longer names, all messages together could have the square of the file's size.
	maxName = 512
)

// File converts the text of a file.
func File(text []byte, o Options) (Result, error) {
	docs, errs := decode.Parse(text)
	if len(errs) > 0 {
		all := make([]error, len(errs))
		for i := range errs {
			all[i] = errs[i]
		}
		return Result{}, errors.Join(all...)
	}
	if len(docs) == 0 {
		return Result{}, errors.New("is empty")
	}
	c := &converter{Options: o}
	for _, d := range docs {
		object, is := d.Value.(map[string]any)
		switch {
		case !is:
			return Result{}, fmt.Errorf("line %d: is not an object", d.Line)
		case object["kind"] == nil && object["services"] != nil:
			c.compose(object)
		case object["kind"] == nil:
			return Result{}, fmt.Errorf("line %d: is neither an object of Kubernetes (no kind) nor a compose file (no services)", d.Line)
		default:
			c.kubernetes(object)
		}
		if len(c.Documents) > maxDocuments {
			return Result{}, fmt.Errorf("has more than %d objects", maxDocuments)
		}
	}
	return c.Result, nil
}

// converter collects the result.
type converter struct {
	Options
	Result
	// dotEnv has the variables of the file .env; nil before it is read.
	dotEnv map[string]string
	// expanded is how many bytes variables have become, read how many the named files have.
	expanded, read int
}

// drop records that a field was left out, and why or what to do instead.
func (c *converter) drop(object, field, why string) {
	c.Dropped = append(c.Dropped, fmt.Sprintf("%s: %s: %s",
		excerpt.Of(object, maxName), excerpt.Of(field, maxName), excerpt.Of(why, maxName)))
}

// fail records that nothing could be made of an object.
func (c *converter) fail(object string, err error) {
	c.Failed = append(c.Failed, fmt.Sprintf("%s: %s", excerpt.Of(object, maxName), excerpt.Of(err.Error(), 2*maxName)))
}

// check removes from an object what type t does not have, and records each field: an unknown one is left out on
// purpose, one whose value cannot be read has failed. prefix precedes the fields in messages.
func check(c *converter, name, prefix string, object map[string]any, t reflect.Type) {
	errs := decode.Check(object, t, "", nil)
	for _, e := range errs {
		if e.Unknown {
			c.drop(name, prefix+e.Path, e.Message)
			continue
		}
		c.fail(name, fmt.Errorf("%s: %s", excerpt.Of(prefix+e.Path, maxName), e.Message))
	}
	if len(errs) == decode.MaxErrors {
		c.fail(name, fmt.Errorf("only the first %d fields are named that are unknown or cannot be read", decode.MaxErrors))
	}
}

// add adds a pod to the documents.
func (c *converter) add(object string, p *v1.Pod) {
	text, err := minimal.Manifest(p, true)
	if err != nil {
		c.fail(object, err)
		return
	}
	c.Documents = append(c.Documents, text)
}

// addTree adds an object that is as the user wrote it.
func (c *converter) addTree(object string, tree map[string]any) {
	text, err := minimal.YAML(tree)
	if err != nil {
		c.fail(object, err)
		return
	}
	c.Documents = append(c.Documents, text)
}

// into converts a tree into a Go type of Kubernetes' API.
func into(tree, to any) error {
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// at returns the object at a path in a tree; nil if there is none.
func at(tree map[string]any, path ...string) map[string]any {
	for _, name := range path {
		tree, _ = tree[name].(map[string]any)
	}
	return tree
}

// text returns the string at a key of a tree; "" if there is none.
func text(tree map[string]any, key string) string {
	s, _ := tree[key].(string)
	return s
}

// absolute returns a path of a compose file, in which ~ is the user's home directory.
func (c *converter) absolute(path string) string {
	if rest, is := strings.CutPrefix(path, "~"); is && (rest == "" || rest[0] == '/') {
		if home, _ := c.lookup("HOME"); home != "" {
			path = home + rest
		}
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(cmp.Or(c.Dir, "/"), path)
}

// sorted returns the keys of a tree in order.
func sorted[T any](tree map[string]T) []string { return slices.Sorted(maps.Keys(tree)) }
