// Command verdict prints what podrun makes of manifests, for the oracle that compares it with Kubernetes.
// It reads JSON objects {name, data} from standard input and writes one line for each. It judges nothing
// itself.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/manifest/validate"
)

// input is a manifest to judge.
type input struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// verdict is what came of it: errors or pods.
type verdict struct {
	Name   string    `json:"name"`
	Errors []finding `json:"errors,omitempty"`
	Pods   []*v1.Pod `json:"pods,omitempty"`
	// Levels has for each level of --pod-security what is wrong with the manifest at it.
	Levels map[string][]finding `json:"levels"`
	// Escapes say what of the restricted pods' containers is not restricted.
	Escapes []string `json:"escapes,omitempty"`
}

type finding struct {
	Field   string `json:"field"`
	Message string `json:"message"`
	// Refused says that podrun does not support the field.
	Refused bool `json:"refused,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
		os.Exit(1)
	}
}

// levels are those of --pod-security that refuse something.
var levels = []string{"baseline", "restricted"}

func run(in io.Reader, out io.Writer) error {
	policies := map[string]*validate.Policy{}
	for _, level := range levels {
		policy, err := validate.NewPolicy(level)
		if err != nil {
			return err
		}
		policies[level] = policy
	}
	refusals := map[string]bool{}
	for _, e := range support.Entries() {
		if e.Support == support.Refused {
			refusals["Forbidden: "+e.Note] = true
		}
	}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var one input
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		v := verdict{Name: one.Name, Levels: map[string][]finding{}}
		if v.Pods, v.Errors, err = judge(one, nil, refusals); err != nil {
			return err
		}
		for _, level := range levels {
			var pods []*v1.Pod
			if pods, v.Levels[level], err = judge(one, policies[level], refusals); err != nil {
				return err
			}
			if level == "restricted" {
				v.Escapes = escapes(pods)
			}
		}
		if err := encoder.Encode(v); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
}

// judge returns the manifest's pods, or what is wrong with it.
func judge(one input, policy *validate.Policy, refusals map[string]bool) ([]*v1.Pod, []finding, error) {
	loaded, err := manifest.Load(one.Data, manifest.LoadOptions{
		Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/" + one.Name}, NodeName: "node1", Policy: policy,
	})
	if err == nil {
		return loaded.Pods, nil, nil
	}
	var invalid *manifest.InvalidError
	if !errors.As(err, &invalid) {
		return nil, nil, fmt.Errorf("loading %s: %w", one.Name, err)
	}
	var found []finding
	for _, e := range invalid.Errors {
		refused := refusals[e.Message] || strings.HasPrefix(e.Message, "Forbidden: ") &&
			(strings.Contains(e.Message, "supported yet") || strings.HasPrefix(e.Field, "metadata.annotations["))
		found = append(found, finding{Field: e.Field, Message: e.Message, Refused: refused})
	}
	return nil, found, nil
}
