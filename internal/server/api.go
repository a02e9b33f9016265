// Package server is the read-only HTTP server of a running podrun: health, the pods with their statuses,
// metrics, at the kubelet's paths, and the page. It changes nothing and knows nobody: what it answers it asks a Node.
package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Node is what the answers come from.
type Node interface {
	// Health are the checks of whether podrun can do its work.
	Health() []Check
	// Ready are the checks of whether all is as it should be.
	Ready() []Check
	// Pods are the pods with their statuses.
	Pods() ([]v1.Pod, error)
	// Summary is what pods and the machine take of processors and memory; with whole, of disks and networks too,
	// which are measured then. Where not all can be read there is an error beside it.
	Summary(ctx context.Context, whole bool) (*kubelet.Summary, error)
	// Log writes a container's log to out, as it comes. ErrNotFound and ErrNotYet say why there is none.
	Log(ctx context.Context, want LogRequest, out io.Writer) error
}

// Check is one thing that was looked at.
type Check struct {
	Name string
	// Err is nil when it is well.
	Err error
}

// Options make a Handler.
type Options struct {
	Node Node
	// Metrics answers /metrics.
	Metrics http.Handler
	// Resource answers /metrics/resource.
	Resource http.Handler
	// Events are what happened to pods, the newest last; nil: nobody keeps them.
	Events func() ([]v1.Event, error)
	Log    *slog.Logger
}

// NewHandler answers at all paths. Other methods than GET and HEAD are refused at every one.
func NewHandler(o Options) http.Handler {
	mux := http.NewServeMux()
	room := make(streamSlots, streams)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		checks(w, r, o.Node.Health(), http.StatusInternalServerError)
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		checks(w, r, o.Node.Ready(), http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/pods", func(w http.ResponseWriter, _ *http.Request) { pods(w, o) })
	mux.Handle("/metrics", o.Metrics)
	mux.Handle("/metrics/resource", o.Resource)
	mux.HandleFunc("/stats/summary", func(w http.ResponseWriter, r *http.Request) { summary(w, r, o) })
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) { containerLog(w, r, o, room) })
	page := newPage(o, room)
	page.answers(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", page.policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "podrun's HTTP is read-only", http.StatusMethodNotAllowed)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// checks answers in Kubernetes' style: "ok" when all is well, else, or when ?verbose asks for it, a line
// for each. ?exclude=NAME leaves one out.
func checks(w http.ResponseWriter, r *http.Request, all []Check, failed int) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	query := r.URL.Query()
	excluded := map[string]bool{}
	for _, e := range query["exclude"] {
		excluded[e] = true
	}
	var text strings.Builder
	good := true
	for _, c := range all {
		switch {
		case excluded[c.Name]:
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.Name)
		case c.Err != nil:
			good = false
			fmt.Fprintf(&text, "[-]%s failed: %s\n", c.Name, oneLine(c.Err))
		default:
			fmt.Fprintf(&text, "[+]%s ok\n", c.Name)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	switch {
	case !good:
		w.WriteHeader(failed)
		fmt.Fprintf(w, "%s%s check failed\n", text.String(), name)
	case query.Has("verbose"):
		fmt.Fprintf(w, "%s%s check passed\n", text.String(), name)
	default:
		fmt.Fprint(w, "ok")
	}
}

// oneLine keeps a check's text on its line, so that no text can pass for another check.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

func pods(w http.ResponseWriter, o Options) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
	items, err := o.Node.Pods()
	if len(items) > 0 {
		list.Items = items
	}
	answer(w, o, "pods", list, err)
}

// summary answers with the kubelet's parameter only_cpu_and_memory, which keeps disks from being measured.
func summary(w http.ResponseWriter, r *http.Request, o Options) {
	const only = "only_cpu_and_memory"
	text := r.URL.Query().Get(only)
	less, err := strconv.ParseBool(cmp.Or(text, "false"))
	if err != nil {
		http.Error(w, only+"="+strconv.Quote(text)+" cannot be used", http.StatusBadRequest)
		return
	}
	all, err := o.Node.Summary(r.Context(), !less)
	if all != nil && err != nil {
		o.Log.Debug("not all that is taken could be read", "why", err)
		err = nil
	}
	answer(w, o, "stats", all, err)
}

// answer sends v as JSON, or says that what cannot be told.
func answer(w http.ResponseWriter, o Options, what string, v any, err error) {
	var data []byte
	if err == nil {
		data, err = json.Marshal(v)
	}
	if err != nil {
		o.Log.Error("answering HTTP", "what", what, "why", err)
		http.Error(w, "the "+what+" cannot be told: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a client that went away is no concern
}
