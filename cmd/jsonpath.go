package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/client-go/util/jsonpath"
)

// jsonPath is a template as kubectl's -o jsonpath takes it.
type jsonPath struct{ template *jsonpath.JSONPath }

func parseJSONPath(template string) (*jsonPath, error) {
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(template); err != nil {
		return nil, err
	}
	return &jsonPath{p}, nil
}

// of returns what the template makes of an object, whose fields have their JSON names.
func (p *jsonPath) of(object any) ([]byte, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := json.Unmarshal(b, &plain); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := p.template.Execute(&out, plain); err != nil {
		return nil, fmt.Errorf("-o jsonpath: %w", err)
	}
	return out.Bytes(), nil
}
