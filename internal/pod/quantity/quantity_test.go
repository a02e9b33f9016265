package quantity

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "100m": 1, "64Mi": 64 << 20, "1e3": 1000, "1E3": 1000, "1E": 1e18, "8Ei": Most, "-5": -5, "12.5": 13, "1e-9": 1,
		"9223372036854775807": Most, "1e18": 1e18, "1e+03": 1000, "1e003": 1000, "0.1e1": 1, "1e-99": 1,
	} {
		if q, err := Parse(text); err != nil || q.Value() != want {
			t.Errorf("%s: %d, %v", text, q.Value(), err)
		}
	}
	for _, text := range []string{
		"", "x", "1e", "1ee1", "9223372036854775808", "18446744073709551616", "1e19", "1e99", "-1e19", "-9223372036854775809",
		"1e999999999", "1234567890123456789e999999999", "1e-999999999", "0.1234567890123456789e-999999999", "1E+999999999",
		"340282366920938463463374607431768211456", strings.Repeat("9", 2000), "10E", "1e100", "-4Pi",
	} {
		if q, err := Parse(text); err == nil {
			t.Errorf("%.50s: %d", text, q.Value())
		}
	}
}

// TestParseIsQuick: nobody waits for a number of a hundred million digits.
func TestParseIsQuick(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1e999999999", "1234567890123456789e999999999", "1234567890123456789E-999999999"} {
		if bytes := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Parse(text)
			}
		}).AllocedBytesPerOp(); bytes > 10_000 {
			t.Errorf("%s: %d bytes", text, bytes)
		}
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"1": true, "2Mi": true, "0": false, "1500m": false, "1.5": false, "-1": false, "1e3": true} {
		if n, whole := Whole(resource.MustParse(text)); whole != want {
			t.Errorf("%s: %d, %t", text, n, whole)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"0", "100m", "64Mi", "1e3", "8Ei", "18446744073709551616", "1e99", "-1.5e-3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err != nil {
			return
		}
		if n := q.Value(); n == 0 && !q.IsZero() {
			t.Errorf("%q is taken for 0", text)
		} else if (n > 0) != (q.Sign() > 0) {
			t.Errorf("%q is taken for %d", text, n)
		}
		if q.Sign() < 0 {
			return // the text of some, such as -7000000000000000.1, is read as another by Kubernetes' type
		}
		if again, err := Parse(q.String()); err != nil || again.Cmp(q) != 0 {
			t.Errorf("%q comes back as %s, %v", text, again.String(), err)
		}
	})
}
