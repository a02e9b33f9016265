package decode

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// wrongOpaque returns what a value of a type that reads itself must be. cause is the type's own error,
// which for some types has a regular expression or a layout of Go's.
func wrongOpaque(text []byte, t reflect.Type, cause error) string {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return "must be a quantity" + similarQuantity(text)
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "must be a time, such as 2026-01-31T15:04:05Z"
	}
	if t == reflect.TypeFor[intstr.IntOrString]() {
		return "must be a number or a string"
	}
	return strings.TrimPrefix(cause.Error(), "json: ")
}

// similarQuantity returns the quantities that a text like 64MB or 64 MiB was probably meant as; if it
// is like none, examples of quantities.
func similarQuantity(text []byte) string {
	const examples = ", such as 500m, 2, 64Mi or 1Gi"
	var value string
	if json.Unmarshal(text, &value) != nil {
		return examples
	}
	number := strings.TrimRight(value, " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(value[len(number):])), "B")
	binary := strings.HasSuffix(unit, "I")
	unit = strings.TrimSuffix(unit, "I")
	if _, err := strconv.ParseFloat(number, 64); err != nil || len(unit) != 1 || !strings.Contains("KMGTPE", unit) {
		return examples
	}
	decimal := number + strings.Replace(unit, "K", "k", 1)
	if binary {
		return "; did you mean " + number + unit + "i?"
	}
	return "; did you mean " + number + unit + "i (1024), or " + decimal + " (1000)?"
}

// complexKey returns the error of the first key that is a mapping or a list, as {{ … }} of a template
// that was not rendered is in YAML; nil if there is none.
func complexKey(p piece, n *yamlv3.Node) *Error {
	for i, child := range n.Content {
		isKey, isComplex := n.Kind == yamlv3.MappingNode && i%2 == 0, len(child.Content) > 0
		if isKey && isComplex {
			return &Error{
				Line: p.line + max(child.Line, 1) - 1,
				Message: "a key must be a string, not a mapping or a list; " +
					"render a template before it is used, or put {{ }} in quotes",
			}
		}
		if err := complexKey(p, child); err != nil {
			return err
		}
	}
	return nil
}

// wrongBase64 says where a text is not base64. It does not quote the text, which may be secret.
func wrongBase64(err error) string {
	if at := base64.CorruptInputError(0); errors.As(err, &at) {
		return fmt.Sprintf(": wrong or missing character at position %d; use stringData or data of a ConfigMap for plain text", int64(at)+1)
	}
	return ""
}
