// Command verdict prints the result of loading manifests with podrun, for the oracle (module
// oracle), which compares it with Kubernetes.
//
// It reads JSON objects {name, data} from standard input and writes one JSON object a line for
// each: the pods or the errors, also at the levels of --pod-security, and the privileges of
// restricted pods that a restricted pod must not have. Package manifest does the loading; this
// command only converts its result. Begin reading at run.
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
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/workload"
)

// input is one manifest.
type input struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// verdict is the result of loading one manifest: errors or pods.
type verdict struct {
	Name   string    `json:"name"`
	Errors []finding `json:"errors,omitempty"`
	Pods   []*v1.Pod `json:"pods,omitempty"`
	// Levels has the errors of the manifest at each level of --pod-security.
	Levels map[string][]finding `json:"levels"`
	// Escapes are the privileges of containers in pods that are accepted at level restricted and
	// that exceed it.
	Escapes []string `json:"escapes,omitempty"`
}

// finding is one error in a manifest.
type finding struct {
	Field   string `json:"field"`
	Message string `json:"message"`
	// Refused is set if podrun does not support the field.
	Refused bool `json:"refused,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
		os.Exit(1)
	}
}

// levels are the levels of --pod-security that refuse pods.
var levels = []string{"baseline", "restricted"}

func run(in io.Reader, out io.Writer) error {
	policies := map[string]*podsecurity.Policy{}
	for _, level := range levels {
		policy, err := podsecurity.New(level)
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
			if len(pods) == 0 && len(v.Levels[level]) == 0 {
				v.Levels[level] = v.Errors // a document that is passed over at a level is not judged, and runs nothing
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

// judge loads a manifest with a policy and returns its pods, or its errors. refusals has the
// messages of fields that podrun does not support.
func judge(one input, policy *podsecurity.Policy, refusals map[string]bool) ([]*v1.Pod, []finding, error) {
	loaded, err := manifest.Load(one.Data, manifest.LoadOptions{
		Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/" + one.Name}, NodeName: "node1", Policy: policy,
	})
	if err == nil {
		pods := loaded.Pods
		for _, one := range workload.Expand(loaded.Workloads, workload.Recorded{}).Pods {
			if one.Workload.Kind != workload.Job {
				pods = append(pods, one.Pod)
			}
		}
		return pods, nil, nil
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
