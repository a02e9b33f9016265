package env

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// parsed has the variables of files that were read already: each file is read once, however many
// variables are from it.
type parsed map[pod.FileKey]map[string]string

// key returns the variable's value from the lines of the file. A missing file counts as one without
// variables.
func (p parsed) key(files map[pod.FileKey]string, ref *v1.FileKeySelector) (value string, found bool, err error) {
	at := pod.FileKey{Volume: ref.VolumeName, Path: ref.Path}
	text, there := files[at]
	if there && p[at] == nil {
		if p[at], err = parse(text); err != nil {
			return "", false, fmt.Errorf("file %s of volume %s: %w", ref.Path, ref.VolumeName, err)
		}
	}
	value, found = p[at][ref.Key]
	if found || isTrue(ref.Optional) {
		return value, found, nil
	}
	if !there {
		return "", false, fmt.Errorf("couldn't find file %s in volume %s", ref.Path, ref.VolumeName)
	}
	return "", false, fmt.Errorf("environment variable key %q not found in file %s of volume %s",
		ref.Key, ref.Path, ref.VolumeName)
}

// parse parses lines of KEY='value', the format of KEP-3721. A value may extend over several lines
// until its closing quote. Blank lines and lines that begin with # are ignored, and the last value
// of a key counts.
func parse(text string) (map[string]string, error) {
	out := map[string]string{}
	for n, rest := 1, text; rest != ""; n++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		line = strings.TrimSuffix(line, "\r")
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		name, quoted, ok := strings.Cut(line, "=")
		if !ok || !strings.HasPrefix(quoted, "'") {
			return nil, fmt.Errorf("line %d is not of the form KEY='value', with no space around the =", n)
		}
		quoted = quoted[1:]
		begin := n
		var whole strings.Builder
		whole.WriteString(quoted)
		for closed := strings.Contains(quoted, "'"); !closed; n++ {
			if rest == "" {
				return nil, fmt.Errorf("the value that begins in line %d has no closing quote", begin)
			}
			line, rest, _ = strings.Cut(rest, "\n")
			whole.WriteString("\n" + line)
			closed = strings.Contains(line, "'")
		}
		content, after, _ := strings.Cut(whole.String(), "'")
		if after = strings.TrimSpace(after); after != "" && !strings.HasPrefix(after, "#") {
			return nil, fmt.Errorf("line %d has text after the closing quote", n)
		}
		out[strings.TrimSpace(name)] = content
	}
	return out, nil
}
