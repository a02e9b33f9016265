package http

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name       string
		failures   int
		answered   bool
		every      time.Duration
		retryAfter time.Duration
		low, high  time.Duration
	}{
		{"well", 0, true, 20 * s, 0, 18 * s, 22 * s},
		{"well, a Retry-After means nothing", 0, true, 20 * s, 600 * s, 18 * s, 22 * s},
		{"first failure", 1, true, 20 * s, 0, 18 * s, 22 * s},
		{"second", 2, true, 20 * s, 0, 36 * s, 44 * s},
		{"third", 3, true, 20 * s, 0, 72 * s, 88 * s},
		{"fourth", 4, true, 20 * s, 0, 144 * s, 176 * s},
		{"hundredth", 100, true, 20 * s, 0, 144 * s, 176 * s},
		{"seldom", 100, true, 60 * s, 0, 270 * s, 330 * s},
		{"very seldom", 100, true, time.Hour, 0, 54 * time.Minute, 66 * time.Minute},
		{"nobody there at boot", 1, false, 20 * s, 0, 900 * time.Millisecond, 1100 * time.Millisecond},
		{"nobody there, fourth", 4, false, 20 * s, 0, 7200 * time.Millisecond, 8800 * time.Millisecond},
		{"nobody there, hundredth", 100, false, 20 * s, 0, 144 * s, 176 * s},
		{"Retry-After", 1, true, 20 * s, 100 * s, 100 * s, 110 * s},
		{"Retry-After sooner than usual", 3, true, 20 * s, 5 * s, 20 * s, 22 * s},
		{"Retry-After too long", 1, true, 20 * s, 24 * time.Hour, 600 * s, 660 * s},
		{"Retry-After with a longer frequency", 1, true, time.Hour, time.Minute, time.Hour, 66 * time.Minute},
	} {
		s := standing{failures: c.failures, answered: c.answered}
		low, mid, high := s.pace(c.every, c.retryAfter, 0), s.pace(c.every, c.retryAfter, 0.5), s.pace(c.every, c.retryAfter, 1)
		if low.Round(time.Millisecond) != c.low || high.Round(time.Millisecond) != c.high || mid <= low || mid >= high {
			t.Errorf("%s: %v %v %v, want %v to %v", c.name, low, mid, high, c.low, c.high)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0}, {"0", "", 0}, {"7", "", 7 * time.Second}, {" 7 ", "", 7 * time.Second}, {"-7", "", 0}, {"soon", "", 0},
		{"86400", "", maxRetryAfter}, {"18446744073709551615", "", maxRetryAfter}, {"99999999999999999999999", "", 0},
		{at(time.Minute), "", time.Minute}, {at(-time.Minute), "", 0}, {at(time.Hour), "", maxRetryAfter},
		{at(time.Hour), at(59 * time.Minute), time.Minute},
		{now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05") + " GMT", "", time.Minute},
	} {
		if got := retryAfter(c.value, c.date, now); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.value, c.date, got, c.want)
		}
	}
}

// gaps are the waits between the requests so far.
func (w *world) gaps() []time.Duration {
	asked, _ := w.asked()
	var all []time.Duration
	for i := 1; i < len(asked); i++ {
		all = append(all, asked[i].at.Sub(asked[i-1].at))
	}
	return all
}

func TestHTTPWaits(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", time.Now().Add(d).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	in := func(seconds string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", seconds)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		want   []int // seconds, give or take a tenth
	}{
		"well":                   {servesIfNew(podText("web", "i")), []int{20, 20, 20, 20}},
		"bad content":            {serves("nonsense"), []int{20, 20, 20, 20}},
		"errors":                 {answers(500), []int{20, 40, 80, 160, 160, 160}},
		"nobody there":           {sendsRaw(""), []int{1, 2, 4, 8, 16, 32, 64, 128, 160, 160}},
		"Retry-After in seconds": {in("50"), []int{50, 50, 50, 50}},
		"Retry-After as a date":  {at(70 * time.Second), []int{70, 70, 70}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, c.handle)
			w.start()
			total := 0
			for _, s := range c.want {
				total += s
			}
			w.after(time.Duration(total) * time.Second * 12 / 10)
			got := w.gaps()
			if len(got) < len(c.want) {
				t.Fatalf("%s: waited %v", name, got)
			}
			even := true
			for i, s := range c.want {
				want := time.Duration(s) * time.Second
				if got[i] < want*9/10-time.Second || got[i] > want*11/10+time.Second {
					t.Errorf("%s: wait %d was %v, want about %v", name, i, got[i], want)
				}
				even = even && got[i]%(want/100) == 0
			}
			if even {
				t.Errorf("%s: no jitter in %v", name, got)
			}
		})
	}
}

func TestHTTPFailuresAreLoggedNowAndThen(t *testing.T) {
	t.Parallel()
	count := func(w *world, text string, want int) {
		t.Helper()
		if n := strings.Count(w.log.String(), text); n != want {
			t.Errorf("%q logged %d times, want %d:\n%s", text, n, want, w.log)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{CheckFrequency: time.Second}, serves(podText("web", "i"))).start()
		w.set(answers(500))
		w.after(9 * time.Minute)
		count(w, "manifests cannot be read", 1)
		count(w, "500 Internal", 1)
		count(w, "1 pods read at", 1)
		w.after(90 * time.Minute)
		count(w, "manifests cannot be read", 10)
		w.set(answers(404)) // the last line is of minutes ago
		w.after(20 * time.Second)
		count(w, "404 Not Found", 1)
		w.set(serves("nonsense"))
		w.after(20 * time.Second)
		count(w, "is not an object", 0)
		w.after(time.Minute)
		count(w, "is not an object", 1)
		count(w, "can be read again", 0)
		w.set(serves(podText("web", "i")))
		w.after(time.Hour)
		count(w, "manifests can be read again", 1)
		count(w, "level=", 14)
	})
}

func TestMaskURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://h/a":                                            "http://h/a",
		"http://h":                                              "http://h",
		"https://me:pass@h:8443/a":                              "https://***@h:8443/a",
		"https://token@h/a":                                     "https://***@h/a",
		"https://me:p@ss@h/a@b":                                 "https://***@h/a@b",
		"http://h/a?b=c&token=x":                                "http://h/a?b=c&token=***",
		"http://h/a?access_token=x#y":                           "http://h/a?access_token=***",
		"http://h/?X-Amz-Signature=1&X-Amz-Date=2":              "http://h/?X-Amz-Signature=***&X-Amz-Date=2",
		"http://h/?to%6ben=x":                                   "http://h/?to%6ben=***",
		"http://h/?PASSWORD=x&apikey=y&sig=z":                   "http://h/?PASSWORD=***&apikey=***&sig=***",
		"http://h/?node=compute-node-us-east-17":                "http://h/?node=compute-node-us-east-17",
		"http://h/?host=worker-1.eu.example.com":                "http://h/?host=worker-1.eu.example.com",
		"http://h/?path=/etc/podrun/manifests":                  "http://h/?path=/etc/podrun/manifests",
		"http://h/?x=ghp_16C7e42F292c6912E7710c83":              "http://h/?x=***",
		"http://h/?d3b07384d113edec49eaa6238ad5ff":              "http://h/?***",
		"http://h/?id=6f1ed002-ab59-4d3c-a3f7-df8c5e1bd8a1":     "http://h/?id=***",
		"http://h/?x=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.": "http://h/?x=***",
		"https://h/hooks/ghp_16C7e42F292c6912E7710c83/pods":     "https://h/hooks/***/pods",
		"https://h/6f1ed002-ab59-4d3c-a3f7-df8c5e1bd8a1":        "https://h/***",
		"https://h/fleet/compute-node-us-east-17.yaml":          "https://h/fleet/compute-node-us-east-17.yaml",
		"http://h/?token=":                                      "http://h/?token=",
		"no URL":                                                "no URL",
		"me:pass@h/a@b":                                         "***@h/a@b",
	} {
		if got := MaskURL(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if got := maskText("refused: redirects from https to http://h/?token=x"); got != "refused: redirects from https to http://h/?token=***" {
		t.Error(got)
	}
	text := fmt.Sprintf("failed to parse Location header %q: bad", "https://a:b@h/?key=c")
	if got := maskText(text); got != `failed to parse Location header "https://***@h/?key=***": bad` {
		t.Error(got)
	}
}
