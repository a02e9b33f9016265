package env

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// fileKey returns the variable's value from the lines of the file. A missing file counts as one
// without variables.
func fileKey(files map[pod.FileKey]string, ref *v1.FileKeySelector) (value string, found bool, err error) {
	text, there := files[pod.FileKey{Volume: ref.VolumeName, Path: ref.Path}]
	if there {
		if value, found, err = lookUp(text, ref.Key); err != nil {
			return "", false, fmt.Errorf("file %s of volume %s: %w", ref.Path, ref.VolumeName, err)
		}
	}
	if found || isTrue(ref.Optional) {
		return value, found, nil
	}
	if !there {
		return "", false, fmt.Errorf("couldn't find file %s in volume %s", ref.Path, ref.VolumeName)
	}
	return "", false, fmt.Errorf("environment variable key %q not found in file %s of volume %s",
		ref.Key, ref.Path, ref.VolumeName)
}

// lookUp parses lines of KEY='value', the format of KEP-3721. A value may extend over several lines
// until its closing quote. Blank lines and lines that begin with # are ignored, and the last value
// of a key counts.
func lookUp(text, key string) (value string, found bool, err error) {
	for n, rest := 1, text; rest != ""; n++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		line = strings.TrimSuffix(line, "\r")
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		name, quoted, ok := strings.Cut(line, "=")
		if !ok || !strings.HasPrefix(quoted, "'") {
			return "", false, fmt.Errorf("line %d is not of the form KEY='value', with no space around the =", n)
		}
		quoted = quoted[1:]
		begin := n
		var whole strings.Builder
		whole.WriteString(quoted)
		for closed := strings.Contains(quoted, "'"); !closed; n++ {
			if rest == "" {
				return "", false, fmt.Errorf("the value that begins in line %d has no closing quote", begin)
			}
			line, rest, _ = strings.Cut(rest, "\n")
			whole.WriteString("\n" + line)
			closed = strings.Contains(line, "'")
		}
		content, after, _ := strings.Cut(whole.String(), "'")
		if after = strings.TrimSpace(after); after != "" && !strings.HasPrefix(after, "#") {
			return "", false, fmt.Errorf("line %d has text after the closing quote", n)
		}
		if strings.TrimSpace(name) == key {
			value, found = content, true
		}
	}
	return value, found, nil
}
