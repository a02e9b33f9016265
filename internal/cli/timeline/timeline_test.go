package timeline

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/timeline"
)

// TestShow: the lines are as wide as the terminal, and 80 characters if there is none.
func TestShow(t *testing.T) {
	recorder := timeline.New()
	recorder.Begin(pod.Key{Namespace: "default", Name: "web"}, "c", timeline.Pull, strings.Repeat("long/", 40)).End(nil)
	recorder.Begin(pod.Key{Namespace: "default", Name: "other"}, "c", timeline.Start, "").End(nil)
	o := Options{Socket: filepath.Join(t.TempDir(), "s"), Namespace: "default", Named: func(_, name string) (*v1.Pod, error) {
		p := &v1.Pod{}
		p.Namespace, p.Name = "default", name
		return p, nil
	}}
	var hinted *cli.Error
	if err := Show(t.Context(), io.Discard, o, nil); !errors.As(err, &hinted) || !strings.Contains(hinted.Hint, "once --timeline") {
		t.Errorf("without a serve: %v", err)
	}
	l, err := net.Listen("unix", o.Socket)
	test.Must(t, err)
	served := &http.Server{Handler: recorder, ReadHeaderTimeout: time.Minute}
	go served.Serve(l)
	t.Cleanup(func() { served.Close() })
	widest := func(text string) (most int) {
		for line := range strings.Lines(text) {
			most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
		}
		return most
	}
	var out strings.Builder
	test.Must(t, Show(t.Context(), &out, o, []string{"web"}))
	if text := out.String(); widest(text) != 80 || !strings.Contains(text, "default/web c pull") || strings.Contains(text, "other") {
		t.Errorf("without a terminal, %d wide:\n%s", widest(text), text)
	}
	for _, width := range []uint16{70, 150} {
		terminal, written := test.Terminal(t, width, 24)
		test.Must(t, Show(t.Context(), terminal, o, nil))
		if text := written(); widest(text) != int(width) || !strings.Contains(text, "other") {
			t.Errorf("on a terminal of %d, %d wide:\n%s", width, widest(text), text)
		}
	}
}
