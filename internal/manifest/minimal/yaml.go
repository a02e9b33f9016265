package minimal

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// YAML returns an object as YAML. It is yaml.Marshal for text of any kind: yaml.Marshal reads JSON as YAML on its way,
// which refuses control characters that JSON may have, such as U+009B, and changes U+0085 into a space. So a container
// could make what shows its message fail.
func YAML(object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(escaped(text))
}

// escaped escapes what JSON may have as it is, and YAML may not. All of it is within strings.
func escaped(text []byte) []byte {
	special := func(r rune) bool { return r >= 0x7f && r <= 0x9f || r == 0xfeff || r == 0xfffe || r == 0xffff }
	if bytes.IndexFunc(text, special) < 0 {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if special(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}
