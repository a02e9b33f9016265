package flags

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
)

// ValueError returns err, an error of parsing flags, with podrun's own words instead of those of Go's
// parsers if a value is wrong: the flag, its value and what it must be.
func ValueError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), expected(bad))
}

// rule returns a rule of Kubernetes for a name without the regular expression that ends it.
func rule(text string) string {
	text, _, _ = strings.Cut(text, " (e.g. ")
	return text
}

// expected returns what the value of a flag must be.
func expected(bad *pflag.InvalidValueError) string {
	var number *strconv.NumError
	isNumber := errors.As(bad, &number)
	switch kind := bad.GetFlag().Value.Type(); {
	case kind == "duration":
		return "must be a duration with its unit, such as 30s, 5m or 1h30m"
	case kind == "bool":
		return "must be true or false"
	case isNumber && errors.Is(number, strconv.ErrRange):
		return "is too large or too small a number"
	case isNumber && strings.HasPrefix(kind, "uint"):
		return "must be a whole number, 0 or more"
	case isNumber:
		return "must be a whole number"
	}
	return bad.Unwrap().Error()
}

// checkSelector checks the value of --selector.
func checkSelector(selector string) error {
	if _, err := labels.Parse(selector); err != nil {
		return fmt.Errorf("--selector %q: %s; a selector is such as app=web,tier!=db or 'app in (web, api)'",
			selector, strings.TrimPrefix(rule(err.Error()), "unable to parse requirement: "))
	}
	return nil
}
