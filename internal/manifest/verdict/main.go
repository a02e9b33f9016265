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
	"podrun.io/podrun/internal/manifest/compat"
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

func run(in io.Reader, out io.Writer) error {
	refusals := map[string]bool{}
	for _, e := range compat.Entries() {
		if e.Support == compat.Refused {
			refusals["Forbidden: "+e.Note] = true
		}
	}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var one input
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		v, err := judge(one, refusals)
		if err != nil {
			return err
		}
		if err := encoder.Encode(v); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
}

func judge(one input, refusals map[string]bool) (verdict, error) {
	v := verdict{Name: one.Name}
	loaded, err := manifest.Load(one.Data, manifest.LoadOptions{
		Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/" + one.Name}, NodeName: "node1",
	})
	var invalid *manifest.InvalidError
	if err != nil && !errors.As(err, &invalid) {
		return v, fmt.Errorf("loading %s: %w", one.Name, err)
	}
	if err == nil {
		v.Pods = loaded.Pods
		return v, nil
	}
	for _, e := range invalid.Errors {
		refused := refusals[e.Message] || strings.HasPrefix(e.Message, "Forbidden: ") &&
			(strings.Contains(e.Message, "supported yet") || strings.HasPrefix(e.Field, "metadata.annotations["))
		v.Errors = append(v.Errors, finding{Field: e.Field, Message: e.Message, Refused: refused})
	}
	return v, nil
}
