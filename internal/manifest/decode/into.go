package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Into decodes a value that Check has cleaned into a Go type. Unknown and duplicate fields are errors.
func Into(value map[string]any, into any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(bytes.TrimSpace(text), into)
	if err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	if len(strict) > 0 {
		return fmt.Errorf("decoding: %w", strict[0])
	}
	return nil
}

// Cut separates the errors in the object at path from the others, and returns them with the paths that
// they have in that object.
func Cut(all []Error, path string) (outside, inside []Error) {
	for _, e := range all {
		rest, ok := strings.CutPrefix(e.Path, path+".")
		if !ok {
			outside = append(outside, e)
			continue
		}
		e.Path, e.Meant = rest, strings.TrimPrefix(e.Meant, path+".")
		inside = append(inside, e)
	}
	return outside, inside
}

// Within returns errors in an object with the paths that they have around it, where the object is at path.
func Within(all []Error, path string) []Error {
	for i := range all {
		all[i].Path = path + "." + all[i].Path
		if all[i].Meant != "" {
			all[i].Meant = path + "." + all[i].Meant
		}
	}
	return all
}
