package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/server/podlog"
)

const (
	// lastLines and lastBytes limit how much of a log a page contains when it is loaded.
	lastLines = 200
	lastBytes = 256 << 10
)

// podNamed returns the pod with the name.
func (p page) podNamed(namespace, name string) (*v1.Pod, error) {
	pods, err := p.o.Node.Pods()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pods, func(one v1.Pod) bool { return one.Namespace == namespace && one.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, ErrNotFound)
	}
	return &pods[i], nil
}

// podLog handles /pod/NAMESPACE/POD/log: the logs of a pod's containers, merged by time, with the parameters of
// containerLog. container selects one.
func (p page) podLog(w http.ResponseWriter, r *http.Request) {
	want := LogRequest{
		Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), Container: r.URL.Query().Get("container"),
	}
	limit, err := want.parse(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	from, err := p.merged(want)
	p.o.sendLog(w, r, p.slots, logResponse{want, limit, len(from.Containers),
		func(ctx context.Context, want LogRequest, out io.Writer) error {
			if err != nil {
				return err
			}
			if want.Follow {
				from.Pod = func() (*v1.Pod, error) { return p.podNamed(want.Namespace, want.Pod) }
			}
			return podlog.Write(ctx, from, out)
		}})
}

// merged returns how to read the logs of a pod's containers, or of one of them.
func (p page) merged(want LogRequest) (o podlog.Options, err error) {
	one, err := p.podNamed(want.Namespace, want.Pod)
	if err != nil {
		return o, err
	}
	if o.Containers = podlog.Containers(one, want.Container); len(o.Containers) == 0 {
		return o, fmt.Errorf("container %q in pod %s: %w", want.Container, want.Pod, ErrNotFound)
	}
	o.Read = func(ctx context.Context, r podlog.Request) error {
		of := want
		of.Container, of.Run, of.CaughtUp, of.ErrOut = r.Container, r.Run, r.CaughtUp, r.ErrOut
		of.Timestamps, of.Follow = true, r.Run != ""
		if r.Later {
			of.Tail, of.Since = nil, time.Time{}
		}
		err := p.o.Node.Log(ctx, of, r.Out)
		if of.Follow && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotYet)) {
			return nil // the instance is so new, or so old
		}
		return err
	}
	return o, nil
}

// logTail returns the last lines of the chosen log, or why there are none.
func (p page) logTail(ctx context.Context, d podData) (last []podlog.Line, why string) {
	tail := lastLines
	from, err := p.merged(LogRequest{
		Namespace: d.Namespace, Pod: d.Name, Container: d.Chosen, Previous: d.Previous, Stream: d.Stream, Tail: &tail,
	})
	if err == nil {
		last, err = podlog.Last(ctx, from, lastLines, lastBytes)
	}
	if err != nil && len(last) == 0 {
		return nil, err.Error()
	}
	return last, ""
}
