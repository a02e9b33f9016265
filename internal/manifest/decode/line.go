package decode

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// LineOf returns the line in the file of the field with this path, such as spec.containers[0].image
// or metadata.labels[app]. For a field that does not exist it returns the line of the nearest field
// around it.
func (d *Document) LineOf(path string) int {
	if d.root == nil {
		d.root = d.nodes()
	}
	line, node := 1, d.root
	if node.Line > 0 {
		line = node.Line
	}
	for path != "" && node != nil {
		for node.Kind == yamlv3.AliasNode {
			node = node.Alias
		}
		at, next, rest := step(node, path)
		if next == nil {
			break
		}
		line, node, path = at, next, rest
	}
	return d.Line + line - 1
}

// nodes returns the document as nodes with line numbers. It does not fail: if the text cannot be
// parsed it returns an empty node, so that LineOf returns the first line of the document.
func (d *Document) nodes() *yamlv3.Node {
	if d.json {
		r := reader{
			piece:   piece{text: d.text, line: d.Line},
			decoder: json.NewDecoder(bytes.NewReader(d.text)),
			nodes:   true,
		}
		if _, node := r.value(""); node != nil {
			return node
		}
		return &yamlv3.Node{}
	}
	var node yamlv3.Node
	if err := yamlv3.Unmarshal(d.text, &node); err != nil || len(node.Content) == 0 {
		return &yamlv3.Node{}
	}
	return node.Content[0]
}

// step returns the child of node that path begins with, the line to report for it, and the rest of
// the path; a nil next if there is no such child.
func step(node *yamlv3.Node, path string) (line int, next *yamlv3.Node, rest string) {
	switch node.Kind {
	case yamlv3.SequenceNode:
		index, after, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(index)
		if !ok || err != nil || i < 0 || i >= len(node.Content) {
			return 0, nil, path
		}
		return node.Content[i].Line, node.Content[i], after
	case yamlv3.MappingNode:
		return stepInto(node, path, 0)
	}
	return 0, nil, path
}

// stepInto is step for a mapping. Keys may contain dots, so it chooses the longest key that path
// begins with. It also searches the mappings of merge keys, up to a depth of 10.
func stepInto(node *yamlv3.Node, path string, depth int) (line int, next *yamlv3.Node, rest string) {
	best := -1
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if after, ok := beginsWith(path, key.Value); ok && len(key.Value) > best {
			best, line, next, rest = len(key.Value), key.Line, value, after
		}
	}
	if next != nil || depth > 10 {
		return line, next, rest
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value != "<<" {
			continue
		}
		for _, merged := range mappings(node.Content[i+1]) {
			if _, next, rest = stepInto(merged, path, depth+1); next != nil {
				return node.Content[i].Line, next, rest
			}
		}
	}
	return 0, nil, path
}

// mappings returns the mappings that the value of a merge key refers to.
func mappings(n *yamlv3.Node) []*yamlv3.Node {
	switch n.Kind {
	case yamlv3.AliasNode:
		return mappings(n.Alias)
	case yamlv3.MappingNode:
		return []*yamlv3.Node{n}
	case yamlv3.SequenceNode:
		var all []*yamlv3.Node
		for _, item := range n.Content {
			if item.Kind != yamlv3.SequenceNode {
				all = append(all, mappings(item)...)
			}
		}
		return all
	}
	return nil
}

// beginsWith removes key, written as .key, key or [key], from the beginning of path; ok is false if
// path does not begin with it.
func beginsWith(path, key string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(path, "["+key+"]"); ok {
		return rest, true
	}
	rest, ok = strings.CutPrefix(strings.TrimPrefix(path, "."), key)
	if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
		return path, false
	}
	return rest, true
}

// pathAt returns the path of the key at a line; "" if there is none.
func pathAt(node *yamlv3.Node, path string, line int, key string) string {
	for i, child := range node.Content {
		at := path
		switch {
		case node.Kind == yamlv3.SequenceNode:
			at = item(path, i)
		case node.Kind == yamlv3.MappingNode && i%2 == 0:
			if child.Line == line && child.Value == key {
				return member(path, key)
			}
			continue
		case node.Kind == yamlv3.MappingNode:
			at = member(path, node.Content[i-1].Value)
		}
		if found := pathAt(child, at, line, key); found != "" {
			return found
		}
	}
	return ""
}
