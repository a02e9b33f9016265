package decode

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// oddKey matches the keys that YAML reads as numbers, booleans or null unless they are quoted.
const oddKey = `(?:[-+]?[.\d][^\s:,{}\[\]]*|~|(?i:y|n|yes|no|on|off|true|false|null))`

var (
	hasOddKey = regexp.MustCompile(`(?m)(?:^|[\s{,?])` + oddKey + `\s*:(?:\s|$)`)
	isOddKey  = regexp.MustCompile(`^` + oddKey + `$`)
)

// spelledTwice returns an error for each two keys of one mapping that are spelled differently and
// become the same JSON key, such as 1 and "1". The decoder would use the value of either, not
// always the same.
func spelledTwice(p piece) []Error {
	if !hasOddKey.Match(p.text) {
		return nil
	}
	var root yamlv3.Node
	if yamlv3.Unmarshal(p.text, &root) != nil {
		return nil
	}
	k := keys{piece: p}
	k.walk(&root, "")
	return k.errs
}

type keys struct {
	piece piece
	errs  []Error
}

func (k *keys) walk(n *yamlv3.Node, path string) {
	if n.Kind != yamlv3.MappingNode {
		for i, child := range n.Content {
			at := path
			if n.Kind == yamlv3.SequenceNode {
				at = item(path, i)
			}
			k.walk(child, at)
		}
		return
	}
	seen := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yamlv3.ScalarNode {
			continue
		}
		name, spelled := k.name(key)
		at := member(path, name)
		if before, twice := seen[name]; twice && before != spelled && len(k.errs) < MaxErrors &&
			!similar(before, spelled) {
			k.errs = append(k.errs, Error{
				Line:    k.piece.line + key.Line - 1,
				Path:    at,
				Message: fmt.Sprintf("duplicate key %q, which was spelled %s", name, before),
			})
		}
		seen[name] = spelled
		k.walk(value, at)
	}
}

// similar reports whether the decoder itself reports two keys as duplicates.
func similar(a, b string) bool {
	_, err := yaml.YAMLToJSONStrict([]byte("{" + a + ": 0, " + b + ": 0}"))
	return err != nil
}

// name returns the JSON form of a key, and its spelling in the YAML text.
func (k *keys) name(key *yamlv3.Node) (name, spelled string) {
	if key.Style == 0 && isOddKey.MatchString(key.Value) {
		text, err := yaml.YAMLToJSON([]byte("? " + key.Value + "\n: 0\n"))
		var object map[string]any
		if err == nil && json.Unmarshal(text, &object) == nil {
			for name := range object {
				return name, key.Value
			}
		}
	}
	return key.Value, strconv.Quote(key.Value)
}
