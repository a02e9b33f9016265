package manifest

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"podrun.io/podrun/internal/manifest/decode"
)

const podHead = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n"

// large are manifests of n parts that took time, or memory, in the square of n.
var large = map[string]func(n int) string{
	"a key again and again": func(n int) string { return strings.Repeat("a: b\n", n) },
	"a merge again and again": func(n int) string {
		return "x: &x {a: b}\ny:\n" + strings.Repeat("  <<: *x\n", n)
	},
	"a list of merges": func(n int) string {
		return "x: &x {a: b}\ny:\n  <<: [" + strings.Repeat("*x,", n) + "]\n"
	},
	"a number again and again":   func(n int) string { return strings.Repeat("1: b\n'1': b\n", n) },
	"a JSON key again and again": func(n int) string { return `{"a":{` + strings.Repeat(`"a": 1,`, n) + `"b":1}}` },
	"unknown fields": func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString("  x" + strconv.Itoa(i) + ": b\n")
		}
		return podHead + b.String()
	},
	"a JSON number":    func(n int) string { return `{"apiVersion":"v1","kind":"Pod","a":` + strings.Repeat("7", 100*n) + `}` },
	"a number":         func(n int) string { return podHead + "  a: " + strings.Repeat("7", 100*n) + "\n" },
	"empty containers": func(n int) string { return podHead + "  containers:\n" + strings.Repeat("  - {}\n", n) },
	"equal variables": func(n int) string {
		return podHead + "  containers:\n  - env:\n" + strings.Repeat("    - {name: a, value: 7}\n", n)
	},
	"documents":      func(n int) string { return strings.Repeat("---\na: b\n", n) },
	"JSON documents": func(n int) string { return strings.Repeat("{}\n", n) },
	"deep":           func(n int) string { return strings.Repeat("{a: ", n) + strings.Repeat("}", n) },
	"a long key":     func(n int) string { return `{"` + strings.Repeat("k", 10*n) + `": [` + strings.Repeat("1,", n) + "1]}" },
	"pods":           func(n int) string { return strings.Repeat("---\n"+podHead+"  containers: [{name: a, image: b}]\n", n) },
	"ConfigMaps": func(n int) string {
		return strings.Repeat("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", n)
	},
	"a list of nothing":         func(n int) string { return "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {}\n", n) },
	"characters that are wrong": func(n int) string { return strings.Repeat("\t\n", n) },
}

// TestLoadIsLinear checks that a file of four times the size needs about four times the
// allocations. It counts allocations because times vary.
func TestLoadIsLinear(t *testing.T) {
	for name, text := range large {
		var took, bytes [2]uint64
		for i, n := range []int{500, 2000} {
			data := []byte(text(n))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Load(data, options("/a.yaml"))
			runtime.ReadMemStats(&after)
			took[i] = after.Mallocs - before.Mallocs
			bytes[i] = after.TotalAlloc - before.TotalAlloc
			var invalid *InvalidError
			if !errors.As(err, &invalid) || len(invalid.Errors) > decode.MaxErrors+1 || len(err.Error()) > 100<<10 {
				t.Errorf("%s: %d bytes of errors", name, len(err.Error()))
			}
		}
		if took[1] > 6*took[0] || bytes[1] > 8*bytes[0] {
			t.Errorf("%s: %d allocations of %d bytes, and %d of %d for four times as much", name, took[0], bytes[0], took[1], bytes[1])
		}
	}
}

// TestLoadOfLongNumbers checks that long numbers are refused soon; parsing them once took minutes.
func TestLoadOfLongNumbers(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("7", 3_000_000)
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Pod","spec":{"priority":` + digits + `}}`,
		`{"apiVersion":"v1","kind":"Pod","spec":{"priority":0.` + digits + `}}`,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: " + digits + "}\n",
	} {
		if _, err := Load([]byte(text), options("/a.yaml")); err == nil || len(err.Error()) > 10<<10 {
			t.Errorf("%.60s: no error, or a long one", text)
		}
	}
}

// TestLoadOfHostileQuantities: quantities beyond 64 bits, of which Kubernetes' type returns the lowest bits, and those
// whose exponents it computes for hours, are refused wherever one may stand, and as soon as others.
func TestLoadOfHostileQuantities(t *testing.T) {
	t.Parallel()
	container := func(fields string) string {
		return podHead + "  containers:\n  - {name: a, image: 'b:1', " + fields + "}\n"
	}
	for _, quantity := range []string{
		"18446744073709551616", "1234567890123456789e999999999", "1e999999999", "1e-999999999", "9223372036854775808",
	} {
		for place, text := range map[string]string{
			"limits":      container("resources: {limits: {memory: " + quantity + "}}"),
			"text":        container("resources: {limits: {memory: '" + quantity + "'}}"),
			"requests":    container("resources: {requests: {cpu: " + quantity + "}}"),
			"devices":     container("resources: {limits: {example.com/gpu: " + quantity + "}}"),
			"huge pages":  container("resources: {limits: {cpu: 1, hugepages-" + quantity + ": 1}}"),
			"divisor":     container("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: " + quantity + "}}}]"),
			"the pod's":   podHead + "  resources: {limits: {hugepages-" + quantity + ": 2Mi}}\n  containers: [{name: a, image: 'b:1'}]\n",
			"size limit":  podHead + "  volumes: [{name: v, emptyDir: {sizeLimit: " + quantity + "}}]\n  containers: [{name: a, image: 'b:1'}]\n",
			"annotation":  strings.Replace(container("tty: true"), "{name: x}", "{name: x, annotations: {kubernetes.io/ingress-bandwidth: '"+quantity+"'}}", 1),
			"JSON number": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"a","image":"b:1","resources":{"limits":{"memory":` + quantity + `}}}]}}`,
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Load([]byte(text), options("/a.yaml"))
			runtime.ReadMemStats(&after)
			// Other tests run at the same time; a number of a hundred million digits takes more than they all do.
			tiny := strings.Contains(quantity, "e-") // where a number may stand, it is 0
			if bytes := after.TotalAlloc - before.TotalAlloc; err == nil && !tiny || bytes > 200<<20 {
				t.Errorf("%s %s: %v, %d bytes", place, quantity, err, bytes)
			}
		}
	}
	_, err := Load([]byte(container("resources: {limits: {x.kubernetes.io/y: 2147483648}}")), options("/a.yaml"))
	if err == nil || !strings.Contains(err.Error(), "must be at most 2147483647") {
		t.Errorf("more devices than can be added up: %v", err)
	}
}

func TestErrorsBeyondThoseKept(t *testing.T) {
	t.Parallel()
	_, err := Load([]byte(large["unknown fields"](1000)), options("/a.yaml"))
	if want := "more is wrong than these 100 errors"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%.200s; want %q at its end", err, want)
	}
}

// TestTooManyGroups checks that a pod cannot have more groups than the kernel supports.
func TestTooManyGroups(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{65536: "", 65537: "supplementalGroups: Too many: 65537: must have at most 65536 items"} {
		groups := strings.TrimSuffix(strings.Repeat("7,", n), ",")
		_, err := Load([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"a:1"}],`+
			`"securityContext":{"supplementalGroups":[`+groups+`]}}}`), options("/a.yaml"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: %.500v", n, err)
		}
	}
}
