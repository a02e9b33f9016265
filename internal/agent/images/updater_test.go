package images

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/workload"
)

// internet is all registries. Each has a newer image under every name. Those whose names begin with "slow" take 59 s to
// say so, and send nothing of it.
type internet struct {
	runtime.Images
	began time.Time

	mu      sync.Mutex
	asked   []string       // in the order of the requests
	now     map[string]int // requests to a host
	most    map[string]int
	updated map[string]time.Duration // by the name of the pod
	failed  map[string][]string
}

func (i *internet) request(ctx context.Context, ref string, slow time.Duration) error {
	host, _, _ := strings.Cut(ref, "/")
	i.mu.Lock()
	i.asked = append(i.asked, ref)
	i.now[host]++
	i.most[host] = max(i.most[host], i.now[host])
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.now[host]--
	}()
	takes := time.Second
	if strings.HasPrefix(host, "slow") {
		takes = slow
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *internet) RegistryDigest(ctx context.Context, ref string, _ ...[]byte) (string, error) {
	return "sha256:new", i.request(ctx, ref, 59*time.Second)
}

func (i *internet) Pull(ctx context.Context, ref string, _ ...[]byte) (pod.Image, error) {
	return pod.Image{}, i.request(ctx, ref, 1000*time.Hour)
}

func (i *internet) Newer(id workload.ID, _ map[string]string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.updated[id.Key.Name] = time.Since(i.began)
}

func (i *internet) Record(e pod.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e.Reason == "AutoUpdateFailed" {
		i.failed[e.Key.Name] = append(i.failed[e.Key.Name], e.Message)
	}
}

// check makes one check of pods with these images, and returns how long it takes. Those with the tag "same" are not old.
func check(t *testing.T, pods map[string][]string) (i *internet, took time.Duration) {
	t.Helper()
	i = &internet{
		began: time.Now(), now: map[string]int{}, most: map[string]int{},
		updated: map[string]time.Duration{}, failed: map[string][]string{},
	}
	u := &Updater{Images: i, Record: i, Events: i, Log: slog.New(slog.DiscardHandler), notified: map[string]bool{}}
	want := manifest.Desired{AutoUpdates: map[workload.ID]workload.AutoUpdate{}}
	for name, refs := range pods {
		a := workload.AutoUpdate{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, Images: map[string]string{}}
		for _, ref := range refs {
			a.Images[ref] = "sha256:old"
			if strings.HasSuffix(ref, ":same") {
				a.Images[ref] = "sha256:new"
			}
		}
		want.AutoUpdates[workload.ID{Kind: workload.Pod, Key: pod.Key{Name: name}}] = a
	}
	u.Want(want)
	u.check(t.Context())
	return i, time.Since(i.began)
}

// expect reports one of a hundred pods, whose registry is not slow, that was not updated in time.
func (i *internet) expect(t *testing.T, within time.Duration) {
	t.Helper()
	for n := range 100 {
		name := fmt.Sprintf("good%d", n)
		if at, is := i.updated[name]; !is || at > within || len(i.failed[name]) > 0 {
			t.Errorf("%s was updated after %v, %t: %v", name, at, is, i.failed[name])
			return
		}
	}
}

func hundred() map[string][]string {
	pods := map[string][]string{}
	for n := range 100 {
		name := fmt.Sprintf("good%d", n)
		pods[name] = []string{"good.example/" + name + ":1"}
	}
	return pods
}

// TestSlowRegistry: a registry that takes as long as it may delays no other, however many images pods name there.
func TestSlowRegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pods := hundred()
		for n := range 8 {
			for m := range 100 {
				name := fmt.Sprintf("bad%d", n)
				pods[name] = append(pods[name], fmt.Sprintf("slow.example/%d:%d", n, m))
			}
		}
		i, took := check(t, pods)
		i.expect(t, 5*time.Minute)
		if took > time.Hour {
			t.Errorf("it took %v", took)
		}
		if most := i.most["slow.example"]; most != 2 {
			t.Errorf("%d requests at once", most)
		}
		// Each pod asks once, then two pull; once these do not end in time there are no more.
		if requests := len(i.asked) - 2*100; requests > 12 {
			t.Errorf("%d requests to a registry that does not answer", requests)
		}
		for n := range 8 {
			failed := i.failed[fmt.Sprintf("bad%d", n)]
			if len(failed) != 100 || !strings.Contains(failed[99], "registry slow.example takes too long") {
				t.Errorf("%d events, the last: %q", len(failed), failed[len(failed)-1])
			}
		}
	})
}

// TestSlowAnswers: a registry that answers, if only just in time, has its share of time too.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pods := map[string][]string{}
		for n := range 500 {
			pods[fmt.Sprint(n)] = []string{fmt.Sprintf("slow.example/%d:same", n)}
		}
		i, took := check(t, pods)
		if took > 35*time.Minute || len(i.asked) > 40 {
			t.Errorf("%d requests, %v", len(i.asked), took)
		}
		if events := len(i.failed); events < 460 {
			t.Errorf("%d events", events)
		}
	})
}

// TestManySlowRegistries: a pod that names one registry after the other delays others by no more than its own share of
// time.
func TestManySlowRegistries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pods := hundred()
		for n := range 8 {
			for m := range 100 {
				name := fmt.Sprintf("bad%d", n)
				pods[name] = append(pods[name], fmt.Sprintf("slow-%d-%d.example/a:1", n, m))
			}
		}
		i, took := check(t, pods)
		i.expect(t, time.Hour)
		if took > time.Hour {
			t.Errorf("it took %v", took)
		}
	})
}

// TestEndOfCheck: however many registries are slow, the next check can begin, and its order is another one.
func TestEndOfCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pods := map[string][]string{}
		for n := range 1000 {
			pods[fmt.Sprint(n)] = []string{fmt.Sprintf("slow%d.example/a:1", n)}
		}
		var first map[string]bool
		for range 2 {
			i, took := check(t, pods)
			if took > 7*time.Hour {
				t.Errorf("it took %v", took)
			}
			pulled, again := map[string]bool{}, 0
			for _, ref := range i.asked {
				if strings.Contains(ref, "@") {
					pulled[ref] = true
				}
				if first[ref] {
					again++
				}
			}
			if first != nil && (len(pulled) < 80 || again > len(pulled)/2) {
				t.Errorf("of %d that were pulled, %d were the first time too", len(pulled), again)
			}
			first = pulled
			if events := len(i.failed); events != 1000 {
				t.Errorf("%d events", events)
			}
		}
	})
}
