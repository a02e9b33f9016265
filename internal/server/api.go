// Package server is the read-only HTTP server of a running podrun. It serves health checks, pods
// with their statuses, resource usage, logs and metrics at the kubelet's paths, and a web page. It
// also handles TLS and the bearer token.
//
// The package changes nothing and has no data of its own: every response comes from a [Node], which
// package agent/nodeinfo implements. Begin reading at [NewHandler] and [Server].
package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/stats"
	"podrun.io/podrun/internal/stats/history"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/timeline"
)

// Node provides the data of the responses.
type Node interface {
	// Health returns the checks of whether podrun can do its work.
	Health() []Check
	// Ready returns the checks of whether everything is in its desired state.
	Ready() []Check
	// Pods returns the pods with their statuses.
	Pods() ([]v1.Pod, error)
	// Running returns what runs on the machine: of each pod the name, the UID and its running
	// containers with their images.
	Running() []v1.Pod
	// Machine returns what the pages show of the machine.
	Machine() Machine
	// Desired returns what manifests have.
	Desired() manifest.Desired
	// ProbeResults returns the last results of the probes of a pod.
	ProbeResults(uid types.UID) []ProbeResult
	// Problems returns why manifests cannot be used, and sources not be read; each names the file.
	Problems() []string
	// Summary returns the CPU and memory usage of pods and the machine; with whole also that of
	// disks and networks, which is measured for the call. If a part cannot be read, it returns an
	// error beside the result.
	Summary(ctx context.Context, whole bool) (*kubelet.Summary, error)
	// Totals returns what the running pods have used in all.
	Totals(ctx context.Context) []stats.Total
	// Log writes a container's log to out as it is read. ErrNotFound and ErrNotYet are the errors
	// of a log that does not exist.
	Log(ctx context.Context, want LogRequest, out io.Writer) error
}

// Machine is the machine that podrun runs on.
type Machine struct {
	// Name is the node's, Version podrun's. The other versions are empty if they are not known.
	Name, Version, Containerd, Kernel string
	// Since is when podrun began to serve.
	Since      time.Time
	Processors int
	Disks      []Disk
	Plugins    []Plugin
	Sources    []Source // those that have been read or have failed
}

// Source is a source of manifests.
type Source struct {
	Name string
	// Read is when its content was last read anew, and Revision identifies that content.
	Read     time.Time
	Revision string
	// Pods counts its pods, Others its other documents, and Wrong those that cannot be used.
	Pods, Others, Wrong int
	// Error says why it cannot be read since some time; "" if it can.
	Error string
	Since time.Time
}

// Plugin is a device plugin or a CSI driver.
type Plugin struct {
	Name, Type string
	Connected  bool
	// Since is when it was disconnected; zero if that is not known.
	Since time.Time
	// Devices counts a device plugin's devices, Healthy and Used those that are so, and Volumes a driver's volumes.
	Devices, Healthy, Used, Volumes int
}

// Disk is a file system that podrun needs space on.
type Disk struct {
	// Name is nodefs, logfs or imagefs.
	Name           string
	Capacity, Free int64
	// Pressed reports that too little is free.
	Pressed bool
}

// Check is the result of one check.
type Check struct {
	Name string
	// Err is nil if the check passed.
	Err error
}

// Options are the dependencies of the handler.
type Options struct {
	Node Node
	// Metrics handles /metrics.
	Metrics http.Handler
	// Resource handles /metrics/resource, Containers /metrics/cadvisor, and Probes /metrics/probes.
	Resource, Containers, Probes http.Handler
	// Timeline is what /api/v1/timeline shows; nil: nothing is known.
	Timeline *Timeline
	// Config is the response of /configz, which is the same as long as serve runs.
	Config any
	// History is what has been used in the last hour; nil: nothing is known.
	History *history.History
	// Events returns the events of pods, newest last; nil if no events are stored.
	Events func() ([]v1.Event, error)
	Log    *slog.Logger
}

// Timeline is what pods spend their time on. It is filled by others.
type Timeline = timeline.Recorder

// NewTimeline returns a Timeline without spans.
func NewTimeline() *Timeline { return timeline.New() }

// NewHandler returns the handler of all paths. It refuses every method but GET and HEAD, and requests with a body.
func NewHandler(o Options) http.Handler {
	if o.History == nil {
		o.History = history.New(history.Options{})
	}
	mux := http.NewServeMux()
	slots := make(streamSlots, streams)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		checks(w, r, o.Node.Health(), http.StatusInternalServerError)
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		checks(w, r, o.Node.Ready(), http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/pods", func(w http.ResponseWriter, _ *http.Request) {
		items, err := o.Node.Pods()
		pods(w, o, items, err)
	})
	mux.HandleFunc("/runningpods/{$}", func(w http.ResponseWriter, _ *http.Request) {
		pods(w, o, o.Node.Running(), nil)
	})
	mux.HandleFunc("/configz", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, o, "settings", o.Config, nil)
	})
	mux.Handle("/metrics", o.Metrics)
	mux.Handle("/metrics/resource", o.Resource)
	mux.Handle("/metrics/cadvisor", o.Containers)
	mux.Handle("/metrics/probes", o.Probes)
	mux.HandleFunc("/stats/summary", func(w http.ResponseWriter, r *http.Request) { statsSummary(w, r, o) })
	mux.HandleFunc("/api/v1/history", func(w http.ResponseWriter, r *http.Request) { usedBefore(w, r, o) })
	mux.Handle("/api/v1/timeline", o.Timeline)
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		containerLog(w, r, o, slots)
	})
	page := newPage(o, slots)
	page.register(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", page.policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "podrun's HTTP is read-only", http.StatusMethodNotAllowed)
			return
		}
		if r.ContentLength != 0 { // while a body is not read, net/http does not see that a client is gone
			w.Header().Set("Connection", "close")
			http.Error(w, "the request has a body", http.StatusBadRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// checks responds in Kubernetes' style: with "ok" if all checks passed, and with a line for each
// check if one failed or with ?verbose. ?exclude=NAME skips a check; those lines name what is no check.
func checks(w http.ResponseWriter, r *http.Request, all []Check, failed int) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	query := r.URL.Query()
	unmatched := slices.Compact(slices.Sorted(slices.Values(query["exclude"])))
	var text strings.Builder
	good := true
	for _, c := range all {
		switch {
		case slices.Contains(query["exclude"], c.Name):
			unmatched = slices.DeleteFunc(unmatched, func(name string) bool { return name == c.Name })
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.Name)
		case c.Err != nil:
			good = false
			fmt.Fprintf(&text, "[-]%s failed: %s\n", c.Name, oneLine(c.Err))
		default:
			fmt.Fprintf(&text, "[+]%s ok\n", c.Name)
		}
	}
	for _, name := range unmatched { // in the words of kube-apiserver
		fmt.Fprintf(&text, "warn: some health checks cannot be excluded: no matches for %q\n", name)
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

// oneLine keeps the text of a check on one line, so that no text can look like another check, or control a terminal.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return summary.Plain(strings.Join(lines, "; "))
}

func pods(w http.ResponseWriter, o Options, items []v1.Pod, err error) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
	if len(items) > 0 {
		list.Items = items
	}
	respond(w, o, "pods", list, err)
}

// statsSummary handles /stats/summary with the kubelet's parameter only_cpu_and_memory, which skips
// measuring disks.
func statsSummary(w http.ResponseWriter, r *http.Request, o Options) {
	const only = "only_cpu_and_memory"
	text := r.URL.Query().Get(only)
	less, err := strconv.ParseBool(cmp.Or(text, "false"))
	if err != nil {
		http.Error(w, only+"="+strconv.Quote(text)+" cannot be used", http.StatusBadRequest)
		return
	}
	all, err := o.Node.Summary(r.Context(), !less)
	if all != nil && err != nil {
		o.Log.Debug("resource usage could not be read completely", "err", err)
		err = nil
	}
	respond(w, o, "stats", all, err)
}

// respond responds with v as JSON or, with err, with status 500. what names the data in messages.
func respond(w http.ResponseWriter, o Options, what string, v any, err error) {
	var data []byte
	if err == nil {
		data, err = json.Marshal(v)
	}
	if err != nil {
		o.Log.Error("answering HTTP", "what", what, "err", err)
		http.Error(w, "the "+what+" cannot be read: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // an error only means that the client has disconnected
}
