package rollouts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// parse reads pods: each is a letter, o of the former template, n of the new one, - none. A capital letter is available,
// a question mark after it: not known.
func parse(text string) (all []Pod) {
	for _, r := range text {
		switch r {
		case 'o', 'O':
			all = append(all, Pod{State: Former, Available: r == 'O'})
		case 'n', 'N':
			all = append(all, Pod{State: Updated, Available: r == 'N'})
		case '-':
			all = append(all, Pod{})
		case '?':
			all[len(all)-1].Unknown = true
		}
	}
	return all
}

func format(all []Choice) string {
	var b strings.Builder
	for _, c := range all {
		b.WriteByte("-ku"[c])
	}
	return b.String()
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		replicas, beyond   string
		surge, unavailable int
		want               string
	}{
		"nothing there":                      {"--", "-", 1, 0, "uu -"},
		"all are new":                        {"NN", "-", 1, 0, "uu -"},
		"one more comes first":               {"O", "-", 1, 0, "k u"},
		"it is not ready":                    {"O", "n", 1, 0, "k k"},
		"it is: the former one goes":         {"O", "N", 1, 0, "u k"},
		"until the next one is ready":        {"n", "N", 1, 0, "u k"},
		"then it goes":                       {"N", "N", 1, 0, "u -"},
		"also if a probe fails meanwhile":    {"n", "n", 1, 0, "u k"},
		"one too many that serves nobody":    {"n", "nn", 1, 0, "u k-"},
		"one too many that does":             {"n", "nN", 1, 0, "u kk"},
		"no surge: one after the other":      {"OOO", "", 0, 1, "ukk"},
		"the next one waits":                 {"nOO", "", 0, 1, "ukk"},
		"until it is available":              {"NOO", "", 0, 1, "uuk"},
		"both":                               {"OOOO", "-", 1, 1, "ukkk u"},
		"what does not serve goes at once":   {"oO", "-", 1, 0, "uk u"},
		"all that do not serve":              {"oo", "-", 1, 0, "uu u"},
		"what is not known stays":            {"o?O", "-", 1, 0, "kk u"},
		"unless it is not needed":            {"o?O", "N", 1, 0, "uk k"},
		"no more pods than are left":         {"NNO", "--", 2, 0, "uuk u-"},
		"another template: the third":        {"O", "O", 1, 0, "u k"},
		"the third: what does not serve":     {"O", "o", 1, 0, "k u"},
		"the third: of all but one of both":  {"n", "O", 1, 0, "u k"},
		"back to the former one":             {"N", "o", 1, 0, "u -"},
		"fewer may be beyond than there are": {"OO", "nN", 1, 0, "uk kk"},
		"no replicas":                        {"", "N", 1, 0, " -"},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, extra := Decide(parse(c.replicas), parse(c.beyond), Strategy{Surge: c.surge, Unavailable: c.unavailable})
			got := strings.TrimSuffix(format(chosen)+" "+format(extra), " ")
			if got != c.want {
				t.Errorf("%s|%s: %q, want %q", c.replicas, c.beyond, got, c.want)
			}
		})
	}
}

// TestEnds: whatever becomes ready when, there are never too few available pods or too many pods, and each roll-out
// ends with the replicas alone.
func TestEnds(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(6)
		s := Strategy{Surge: r.IntN(n + 1), Unavailable: r.IntN(n + 1)}
		if s.Surge+s.Unavailable == 0 {
			s.Surge = 1
		}
		replicas, beyond := parse(strings.Repeat("O", n)), make([]Pod, s.Surge)
		done := func() bool {
			all := func(p Pod) bool { return p.State == Updated && p.Available }
			return !slices.ContainsFunc(replicas, func(p Pod) bool { return !all(p) }) &&
				!slices.ContainsFunc(beyond, func(p Pod) bool { return p.State != Absent })
		}
		steps := 0
		for ; !done() && steps < 200; steps++ {
			if r.IntN(10) == 0 && steps < 100 { // the template is changed again
				for _, all := range [][]Pod{replicas, beyond} {
					for i := range all {
						if all[i].State == Updated {
							all[i].State = Former
						}
					}
				}
			}
			chosen, extra := Decide(replicas, beyond, s)
			available, pods := 0, 0
			for _, side := range []struct {
				pods    []Pod
				choices []Choice
			}{{replicas, chosen}, {beyond, extra}} {
				for i, c := range side.choices {
					p := &side.pods[i]
					switch {
					case c == Remove:
						*p = Pod{}
					case c == Update && p.State != Updated:
						*p = Pod{State: Updated}
					}
					if p.State != Absent {
						pods++
					}
					if p.Available {
						available++
					}
				}
			}
			if available < n-s.Unavailable || pods > n+s.Surge {
				t.Fatalf("seed %d: %+v: %d available and %d pods of %d", seed, s, available, pods, n)
			}
			for _, all := range [][]Pod{replicas, beyond} {
				for i := range all {
					all[i].Available = all[i].Available || all[i].State != Absent && r.IntN(3) == 0
				}
			}
		}
		if !done() {
			t.Fatalf("seed %d: %+v of %d does not end: %+v %+v", seed, s, n, replicas, beyond)
		}
	}
}

func TestScaled(t *testing.T) {
	percent := func(s string) *intstr.IntOrString { v := intstr.Parse(s); return &v }
	for _, c := range []struct {
		surge, unavailable string
		replicas           int
		want               string
	}{
		{"25%", "25%", 1, "{1 0 0s}"}, {"25%", "25%", 4, "{1 1 0s}"}, {"25%", "25%", 10, "{3 2 0s}"},
		{"0", "20%", 1, "{0 1 0s}"}, {"2", "0", 3, "{2 0 0s}"},
	} {
		got := Scaled(percent(c.surge), percent(c.unavailable), c.replicas, 0)
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
