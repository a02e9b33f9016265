package reader

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/manifest"
)

func TestReaderGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, calls := make(chan bool), 0
		r := &Reader{load: func(data []byte, o manifest.LoadOptions) (manifest.Loaded, error) {
			calls++
			if string(data) == "slow" {
				<-release
			}
			return manifest.Loaded{}, errors.New("read " + string(data))
		}}
		took := func(done <-chan struct{}, text string) (time.Duration, string) {
			start := time.Now()
			_, err := r.Load(done, []byte(text), manifest.LoadOptions{Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/a.yaml"}, NodeName: "node1"})
			if errors.Is(err, ErrTooSlow) != strings.HasPrefix(err.Error(), "/a.yaml: takes too long") {
				t.Errorf("error %v", err)
			}
			return time.Since(start), strings.TrimPrefix(err.Error(), "/a.yaml: ")
		}
		const given = "takes too long to read: more than 1s"
		closed := make(chan struct{})
		close(closed)
		for i, c := range []struct {
			text, want string
			after      time.Duration
			before     func()
		}{
			{text: "quick", want: "read quick"},
			{text: "slow", want: given, after: LoadTime},
			{text: "slow", want: given}, // it goes on, and is not begun again
			{text: "quick", want: given},
			{text: "slow", want: "read slow", before: func() { release <- true }},
			{text: "slow", want: given, after: LoadTime},
			{text: "quick", want: "read quick", before: func() { release <- true }},
		} {
			if c.before != nil {
				c.before()
				synctest.Wait()
			}
			if after, got := took(nil, c.text); after != c.after || got != c.want {
				t.Errorf("%d: %q after %v", i, got, after)
			}
		}
		if after, got := took(closed, "slow"); after != 0 || got != given {
			t.Errorf("%q after %v", got, after)
		}
		if release <- true; calls != 5 {
			t.Errorf("%d calls", calls)
		}
	})
}

// TestReaderOfABusyMachine: who reads once waits for a manifest that a busy machine reads slowly.
func TestReaderOfABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slowly := func([]byte, manifest.LoadOptions) (manifest.Loaded, error) {
			time.Sleep(30 * time.Second)
			return manifest.Loaded{}, nil
		}
		r := &Reader{Limit: LoadTimeAlone, load: slowly}
		if _, err := r.Load(nil, nil, manifest.LoadOptions{}); err != nil {
			t.Error(err)
		}
	})
}
