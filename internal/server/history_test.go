package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats"
	"podrun.io/podrun/internal/stats/history"
)

// atWork is a node whose one container uses a quarter of a processor, and 3 MiB.
type atWork struct{ fakeNode }

func (atWork) Summary(context.Context, bool) (*kubelet.Summary, error) {
	now := time.Now()
	total, memory := uint64(now.UnixNano()%1e18/4), uint64(3<<20)
	c := kubelet.ContainerStats{Name: "c", CPU: &kubelet.CPUStats{Time: metav1.Time{Time: now}, UsageCoreNanoSeconds: &total},
		Memory: &kubelet.MemoryStats{WorkingSetBytes: &memory}}
	return &kubelet.Summary{Pods: []kubelet.PodStats{{
		PodRef: kubelet.PodReference{Namespace: "n", Name: "p", UID: "u"}, Containers: []kubelet.ContainerStats{c},
	}}}, nil
}

func (atWork) Totals(context.Context) []stats.Total {
	seconds := uint64(time.Now().Unix() % 1e6)
	return []stats.Total{{
		Pod: pod.Key{Namespace: "n", Name: "p"}, UID: "u", Throttled: time.Duration(seconds) * 50 * time.Millisecond,
		Network: true, Received: seconds * 2048, Sent: seconds * 3 << 20, Disk: 5 << 20,
	}}
}

func (atWork) Pods() ([]v1.Pod, error) {
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u"}}
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	return []v1.Pod{p}, nil
}

// TestHistory: who asks gets the samples since somebody asked first, and the pages draw them.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		before, wait := StartHistory(ctx, atWork{}, false)
		none := http.NotFoundHandler()
		h := NewHandler(Options{
			Node: atWork{}, History: before, Metrics: none, Resource: none, Containers: none, Probes: none, Log: slog.New(slog.DiscardHandler),
		})
		ask := func(path string) string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			return w.Body.String()
		}
		if got := ask("/api/v1/history"); got != `{"intervalSeconds":10,"end":null,"items":[],"pods":[]}` {
			t.Errorf("at first %s", got)
		}
		time.Sleep(5*time.Minute - time.Second)
		var all historyList
		if err := json.Unmarshal([]byte(ask("/api/v1/history?namespace=n&pod=p")), &all); err != nil || len(all.Items) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		s := all.Items[0]
		last := len(s.CPU) - 1
		if s.Container != "c" || last < 28 || s.CPU[0] != nil || *s.CPU[last] < 249 || *s.CPU[last] > 251 || *s.Memory[last] != 3<<20 ||
			time.Since(*all.End) > history.Every {
			t.Errorf("%+v", s)
		}
		p := all.Pods[0]
		if n := len(p.Sent); n != 60 || p.Pod != "p" || math.Round(*p.Throttled[59]) != 50 || math.Round(*p.Received[59]/2048*100) != 100 ||
			math.Round(*p.Sent[59]/3/(1<<20)*100) != 100 || *p.Disk[59] != 5<<20 || p.Sent[40] != nil {
			t.Errorf("%+v", p)
		}
		if got := ask("/api/v1/history?pod=other"); !strings.HasSuffix(got, `"items":[],"pods":[]}`) {
			t.Errorf("of another pod: %s", got)
		}
		for _, path := range []string{"/", "/pod/n/p"} {
			page := ask(path)
			for _, want := range []string{
				`aria-label="CPU in the last hour: at most 24`, `aria-label="Memory in the last hour: at most 3Mi"`, `<path d="M1`,
			} {
				if !strings.Contains(page, want) {
					t.Errorf("%s lacks %s", path, want)
				}
			}
		}
		page := ask("/pod/n/p")
		for _, want := range []string{
			"<dt>Throttled</dt><dd>5.0 % of the time <svg", "<dt>Received</dt><dd>2.0Ki/s <svg", "<dt>Sent</dt><dd>3.0Mi/s <svg",
			"<dt>Writable layers</dt><dd>5Mi <svg",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("no %s", want)
			}
		}
		cancel()
		wait()
	})
}
