package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/timeline"
)

// spans returns the spans of some kinds, each with its detail and how long it took.
func spans(r *timeline.Recorder, kinds ...timeline.Kind) (out []string) {
	for _, s := range r.Spans(func(s timeline.Span) bool { return slices.Contains(kinds, s.Kind) }) {
		end := "goes on"
		if s.End != nil {
			end = s.End.Sub(s.Begin).String()
		}
		out = append(out, strings.Join(strings.Fields(s.Container+" "+string(s.Kind)+" "+end+" "+s.Detail), " "))
	}
	return out
}

// TestPartsOfAStart: the timeline tells the network from the rest of a sandbox, and unpacking from fetching.
func TestPartsOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New("boot-1")
		recorder := timeline.New()
		rt.SlowPull("a:1", &pod.Progress{Total: 9, Done: 1, Layers: 3})
		h := start(t, rt, func(o *reconcile.Options) { o.Timeline = recorder })
		defer h.stop()
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a"))
		after(3 * time.Second)
		rt.SlowPull("a:1", &pod.Progress{Fetched: 9, Total: 9, Done: 3, Layers: 3})
		after(4 * time.Second)
		if got, want := spans(recorder, timeline.Unpack), []string{"a unpack goes on a:1"}; !slices.Equal(got, want) {
			t.Errorf("while it is unpacked: %q, want %q", got, want)
		}
		rt.SlowPull("a:1", nil)
		after(time.Second)
		got := spans(recorder, timeline.Sandbox, timeline.Network, timeline.Pull, timeline.Unpack)
		want := []string{
			"a pull 3s a:1", "a unpack 4s a:1", "network 0s", "sandbox 0s", "sandbox 0s rest",
		}
		slices.Sort(got) // the pull and the sandbox begin at once
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestWaitingForWhom: the timeline names whom a pod waits for: its owner, another pod, a container before it.
func TestWaitingForWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"i:1": {Run: 2 * time.Second}, "j:1": {Run: 5 * time.Second}, "a:1": {}})
		recorder := timeline.New()
		owners := &oneOwner{other: "podrun once"}
		rt.SlowPull("s:1", &pod.Progress{Total: 9, Done: 1, Layers: 3})
		h := start(t, rt, func(o *reconcile.Options) { o.Timeline, o.Owners = recorder, owners })
		defer h.stop()
		web := after1(withInit(newPod("web-n", "u1", v1.RestartPolicyAlways, "a"), "i", "S"), "job")
		h.want(web, newPod("job-n", "u2", v1.RestartPolicyNever, "j"))
		after(3 * time.Second)
		owners.set("")
		after(8 * time.Second)
		for range 4 { // the status has the progress, of which the timeline makes nothing
			after(time.Second)
			rt.SlowPull("s:1", &pod.Progress{Fetched: int64(time.Now().Second()), Total: 99, Done: 1, Layers: 3})
		}
		rt.SlowPull("s:1", nil)
		after(time.Second)
		var got []string
		of := func(s timeline.Span) bool { return s.Pod == "web-n" && s.Kind == timeline.Waiting }
		for _, s := range recorder.Spans(of) {
			if s.End == nil || s.End.Sub(s.Begin) >= time.Second {
				got = append(got, s.Container+" "+s.Detail)
			}
		}
		slices.Sort(got)
		want := []string{
			" OwnedByOther: The pod is run by podrun once",
			" WaitingForPods: starts after default/job-n",
			"a PodInitializing: init container i",
			"a PodInitializing: sidecar s",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestWaitingForAPlugin: the timeline says what the creation of a sandbox hangs in.
func TestWaitingForAPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		recorder := timeline.New()
		h := start(t, rt, func(o *reconcile.Options) { o.Timeline, o.Sandboxes = recorder, plugin{rt} })
		defer h.stop()
		h.want(web())
		after(10 * time.Second)
		want := []string{"sandbox goes on for a plugin"}
		if got := spans(recorder, timeline.Sandbox); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
