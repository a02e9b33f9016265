package secretenv

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// hidden stands for a value that may not be told.
const hidden = "<Secret>"

// Hush is err without the values, as they are or quoted: a runtime that cannot start a process says what it was
// to start, and that would go into the container's record, the log and the pod's status. An error that tells
// none of them stays as it is; of another only the text is left.
func Hush(err error, values []string) error {
	if err == nil {
		return nil
	}
	said := err.Error()
	out := said
	longest := slices.SortedFunc(slices.Values(values), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, value := range longest {
		if value == "" {
			continue
		}
		quoted := strconv.Quote(value)
		out = strings.ReplaceAll(out, quoted[1:len(quoted)-1], hidden)
		out = strings.ReplaceAll(out, value, hidden)
	}
	if out == said {
		return err
	}
	return errors.New(out)
}
