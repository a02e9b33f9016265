package podlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// stamped returns lines of a log, one each second from the given one on.
func stamped(second, n int, text string) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "2026-01-02T15:%02d:%02d.000000000Z %s%d\n", (second+i)/60, (second+i)%60, text, i)
	}
	return out.String()
}

// texts are the containers, streams and texts of lines.
func texts(all []Line) (out []string) {
	for _, l := range all {
		out = append(out, l.Container+" "+l.Stream+" "+l.Text)
	}
	return out
}

// pod returns a pod with containers, each with the IDs of its previous and its newest instance.
func pod(runs map[string][2]string) *v1.Pod {
	p := &v1.Pod{}
	for name, ids := range runs {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
		s := v1.ContainerStatus{Name: name, ContainerID: ids[1]}
		if ids[0] != "" {
			s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: ids[0]}
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	return p
}

// TestMergedByTime: the lines of all containers and both streams come by their time, and those of one stream in their order.
func TestMergedByTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		logs map[string][2]string
		want string
	}{
		"two containers":  {map[string][2]string{"a": {stamped(1, 2, "x"), ""}, "b": {stamped(2, 2, "y"), ""}}, "a stdout x0,a stdout x1,b stdout y0,b stdout y1"},
		"two streams":     {map[string][2]string{"a": {stamped(1, 1, "x"), stamped(3, 1, "e")}, "b": {stamped(2, 1, "y"), ""}}, "a stdout x0,b stdout y0,a stderr e0"},
		"no end":          {map[string][2]string{"a": {strings.TrimSuffix(stamped(1, 1, "x"), "\n"), ""}}, "a stdout x0"},
		"of others":       {map[string][2]string{"a": {stamped(3, 1, "x") + "no time\n\n", ""}, "b": {stamped(2, 1, "y") + stamped(4, 1, "z"), ""}}, "b stdout y0,a stdout x0,a stdout no time,a stdout ,b stdout z0"},
		"without text":    {map[string][2]string{"a": {"2026-01-02T15:04:05Z \n", ""}}, "a stdout "},
		"one has no log":  {map[string][2]string{"a": {stamped(1, 1, "x"), ""}, "none": {}}, "a stdout x0"},
		"nothing written": {map[string][2]string{"a": {}}, ""},
	} {
		var names []string
		for name := range c.logs {
			names = append(names, name)
		}
		slices.Sort(names)
		var got []Line
		err := Merge(t.Context(), Options{Containers: names, Read: func(_ context.Context, r Request) error {
			if r.Container == "none" {
				return errors.New("no log")
			}
			_, err := io.WriteString(r.Out, c.logs[r.Container][0])
			_, err2 := io.WriteString(r.ErrOut, c.logs[r.Container][1])
			return errors.Join(err, err2)
		}}, func(all []Line) error { got = append(got, all...); return nil })
		if text := strings.Join(texts(got), ","); err != nil || text != c.want {
			t.Errorf("%s: %s, %v, want %s", name, text, err, c.want)
		}
	}
}

// TestNoLogAtAll: it fails only if there is nothing of any log.
func TestNoLogAtAll(t *testing.T) {
	t.Parallel()
	err := Write(t.Context(), Options{Containers: []string{"a", "b"}, Read: func(_ context.Context, r Request) error {
		return errors.New("no log of " + r.Container)
	}}, io.Discard)
	if err == nil || err.Error() != "no log of a\nno log of b" {
		t.Error(err)
	}
}

// TestLongLines: a line without an end is passed on in pieces, which have its time and whole characters.
func TestLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", longest)
	var got []Line
	err := Merge(t.Context(), Options{Containers: []string{"a"}, Read: func(_ context.Context, r Request) error {
		for _, b := range []byte("2026-01-02T15:04:05Z " + long) {
			if _, err := r.Out.Write([]byte{b}); err != nil {
				return err
			}
		}
		_, err := io.WriteString(r.Out, " 2026-01-02T15:04:06Z x\n")
		return err
	}}, func(all []Line) error { got = append(got, all...); return nil })
	var text strings.Builder
	for i, l := range got {
		text.WriteString(l.Text)
		if strings.ToValidUTF8(l.Text, "?") != l.Text || l.Time != "2026-01-02T15:04:05Z" || len(l.Text) > longest {
			t.Errorf("piece %d: %s %d bytes", i, l.Time, len(l.Text))
		}
	}
	if err != nil || len(got) != 3 || text.String() != long+" 2026-01-02T15:04:06Z x" {
		t.Errorf("%d pieces of %d bytes, %v", len(got), text.Len(), err)
	}
}

// TestPieceLikeALine: the rest of a long line is no line, even if it begins with what is a time.
func TestPieceLikeALine(t *testing.T) {
	t.Parallel()
	const at = "2026-01-02T15:04:05Z "
	var got []Line
	err := Merge(t.Context(), Options{Containers: []string{"a"}, Read: func(_ context.Context, r Request) error {
		for _, text := range []string{at + strings.Repeat("x", longest-1-len(at)), "2", "026-01-02T15:04:06Z y\n"} {
			if _, err := io.WriteString(r.Out, text); err != nil {
				return err
			}
		}
		return nil
	}}, func(all []Line) error { got = append(got, all...); return nil })
	if err != nil || len(got) != 2 || got[1].Text != "2026-01-02T15:04:06Z y" || got[1].Time+" " != at {
		t.Errorf("%d pieces, the last %q, %v", len(got), got[len(got)-1], err)
	}
}

// TestChoice: what the address has is chosen, if there is such a log, and makes the same choice again.
func TestChoice(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"": "?container=a", "container=b": "?container=b", "container=c": "?container=a", "container=*&previous=true": "?container=%2A&previous=true",
		"stream=Stderr&previous=1": "?container=a&stream=Stderr", "stream=x": "?container=a",
	} {
		q, err := url.ParseQuery(query)
		c := Choice{Chosen: "a"}
		c.Choose(q, []string{"a", "b"})
		if got := c.LogQuery(); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", query, got, err, want)
		}
	}
}

// followed is a pod whose logs are written while they are followed.
type followed struct {
	mu     sync.Mutex
	pod    *v1.Pod                       // nil: gone
	steps  map[string]chan func(Request) // by run; closed at its end
	opened []Request
}

func (f *followed) set(p *v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pod = p
}

func (f *followed) options(names ...string) Options {
	return Options{
		Containers: names,
		Pod: func() (*v1.Pod, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.pod == nil {
				return nil, errors.New("gone")
			}
			return f.pod, nil
		},
		Read: func(ctx context.Context, r Request) error {
			f.mu.Lock()
			f.opened = append(f.opened, r)
			f.mu.Unlock()
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case step, more := <-f.steps[r.Run]:
					if !more {
						return nil
					}
					step(r)
				}
			}
		},
	}
}

// writes is a step that writes to standard output.
func writes(text string) func(Request) {
	return func(r Request) { _, _ = io.WriteString(r.Out, text) }
}

func caughtUp(r Request) { r.CaughtUp() }

// TestFollowWaitsForOlderLines: a line is passed on when no other log may have an older one.
func TestFollowWaitsForOlderLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &followed{pod: pod(map[string][2]string{"a": {"", "a1"}, "b": {"", "b1"}, "c": {}}),
			steps: map[string]chan func(Request){"a1": make(chan func(Request)), "b1": make(chan func(Request))}}
		var got []Line
		done := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			done <- Merge(ctx, f.options("a", "b", "c"), func(all []Line) error { got = append(got, all...); return nil })
		}()
		step := func(run string, do func(Request), want ...string) {
			t.Helper()
			f.steps[run] <- do
			synctest.Wait()
			if text := texts(got); !slices.Equal(text, want) {
				t.Errorf("got %q, want %q", text, want)
			}
		}
		step("a1", caughtUp)
		step("a1", writes(stamped(2, 1, "x")))
		step("b1", writes(stamped(1, 1, "y")), "b stdout y0") // b may have more
		step("b1", caughtUp, "b stdout y0", "a stdout x0")
		step("b1", writes(stamped(3, 1, "z")), "b stdout y0", "a stdout x0") // a was read to its end before that
		step("a1", caughtUp, "b stdout y0", "a stdout x0", "b stdout z0")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestFollowOverRestarts: the newest instance is followed, and then each that comes, once; a container that has ended
// holds up no other; all ends with the pod.
func TestFollowOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &followed{pod: pod(map[string][2]string{"a": {"a0", "a1"}, "b": {"", "b1"}}), steps: map[string]chan func(Request){}}
		for _, run := range []string{"a1", "a2", "a3", "b1"} {
			f.steps[run] = make(chan func(Request))
		}
		var got []Line
		done := make(chan error)
		go func() {
			done <- Merge(t.Context(), f.options("a", "b"), func(all []Line) error { got = append(got, all...); return nil })
		}()
		f.steps["a1"] <- writes(stamped(1, 1, "x"))
		f.steps["b1"] <- caughtUp
		close(f.steps["a1"])
		synctest.Wait()
		f.steps["b1"] <- writes(stamped(2, 1, "y"))
		synctest.Wait()
		if text := texts(got); !slices.Equal(text, []string{"a stdout x0", "b stdout y0"}) {
			t.Errorf("a has ended: %q", text)
		}
		f.set(pod(map[string][2]string{"a": {"a2", "a3"}, "b": {"", "b1"}})) // a2 came and went
		close(f.steps["a2"])
		f.steps["a3"] <- writes(stamped(3, 1, "z"))
		time.Sleep(3 * pollPeriod)
		f.set(nil)
		close(f.steps["a3"])
		close(f.steps["b1"])
		if err := <-done; err != nil {
			t.Error(err)
		}
		got = slices.DeleteFunc(got, func(l Line) bool { return l.Container == "b" })
		if text := strings.Join(texts(got), ","); text != "a stdout x0,a - started again,a - started again,a stdout z0" || got[1].Time != got[0].Time {
			t.Errorf("got %s", text)
		}
		var opened []string
		for _, r := range f.opened {
			opened = append(opened, fmt.Sprint(r.Run, r.Later))
		}
		if slices.Sort(opened); !slices.Equal(opened, []string{"a1false", "a2true", "a3true", "b1false"}) {
			t.Errorf("opened %v", opened)
		}
	})
}

// TestUnreadableLog: an error of a followed log is a line of it.
func TestUnreadableLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := (&followed{pod: pod(map[string][2]string{"a": {"", "a1"}})}).options("a")
		o.Read = func(context.Context, Request) error { return errors.New("input/output error") }
		done := errors.New("enough")
		var got []Line
		err := Merge(t.Context(), o, func(all []Line) error { got = slices.Clone(all); return done })
		if text := texts(got); !errors.Is(err, done) || !slices.Equal(text, []string{"a - input/output error"}) {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// TestSlowReader: while nobody reads, containers that write without an end fill their buffers and no more; who reads
// another response does not wait for that.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		written := 0
		o := Options{Containers: []string{"a", "b", "c"}, Read: func(ctx context.Context, r Request) error {
			text := stamped(1, 100, strings.Repeat("x", 200))
			for ctx.Err() == nil {
				n, err := io.WriteString(r.Out, text)
				if err != nil {
					return err
				}
				mu.Lock()
				written += n
				mu.Unlock()
			}
			return ctx.Err()
		}}
		done := make(chan error)
		go func() {
			done <- Merge(ctx, o, func([]Line) error { <-ctx.Done(); return ctx.Err() })
		}()
		synctest.Wait()
		if most := 3*(buffered+32<<10) + batchBytes; written < 3*buffered/2 || written > most {
			t.Errorf("%d bytes are read, at most %d may be", written, most)
		}
		lines := 0
		quick := errors.New("quick")
		err := Merge(t.Context(), o, func(all []Line) error {
			if lines += len(all); lines > 50_000 {
				return quick
			}
			return nil
		})
		if !errors.Is(err, quick) {
			t.Errorf("another reader: %d lines, %v", lines, err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestLast: the last lines, without what acts.
func TestLast(t *testing.T) {
	t.Parallel()
	o := Options{Containers: []string{"a"}, Read: func(_ context.Context, r Request) error {
		_, err := io.WriteString(r.Out, stamped(1, 100, strings.Repeat("y", 50))+"2026-01-02T16:00:00Z \x1b[31mred\x1b[0m \x1b]0;t\a\r\x07\n")
		return err
	}}
	for most, want := range map[int]int{1: 1, 5: 5, 1000: 10} {
		last, err := Last(t.Context(), o, most, 500)
		if err != nil || len(last) != want || last[len(last)-1].Text != `red \x07` {
			t.Errorf("%d: %q, %v", most, last, err)
		}
	}
}

// TestWrite: a line has its time, container and stream before its text.
func TestWrite(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := Write(t.Context(), Options{Containers: []string{"a"}, Read: func(_ context.Context, r Request) error {
		_, err := io.WriteString(r.ErrOut, "2026-01-02T15:04:05Z a b\n")
		return err
	}}, &out)
	if err != nil || out.String() != "2026-01-02T15:04:05Z a stderr a b\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestContainers: init containers come first.
func TestContainers(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}, InitContainers: []v1.Container{{Name: "i"}}}}
	for chosen, want := range map[string]string{"": "i,a,b", All: "i,a,b", "b": "b", "i": "i", "none": ""} {
		if got := strings.Join(Containers(p, chosen), ","); got != want {
			t.Errorf("%q: %s", chosen, got)
		}
	}
}
