package secretenv

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// hidden replaces a value that must not be shown.
const hidden = "<Secret>"

// Hush returns err without the values, plain or quoted. A runtime that cannot start a process
// quotes its command line in the error, and that error goes to the container's record, the log and
// the pod's status. An error that contains no value is returned as it is; of another one only the
// text remains, so errors.Is does not match it.
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
