package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/bridge"
)

// connections is how many pods are connected one after the other.
const connections = 50

// measureNetwork measures how long podrun's own bridge takes to connect a pod's network namespace
// until its address can be used, while pods other pods are connected. The bridge already exists, as
// on a machine that runs pods.
func measureNetwork(ctx context.Context, dir string, pods int) (times []time.Duration, err error) {
	podNetwork := bridge.New(bridge.Options{
		Dirs: layout.Dirs{Run: filepath.Join(dir, "run", "bridge")}, Log: slog.New(slog.DiscardHandler),
	})
	var held []string
	defer func() {
		for _, id := range held {
			err = errors.Join(err, podNetwork.Teardown(context.WithoutCancel(ctx), id))
		}
	}()
	for i := range pods + connections {
		ns, leave, err := newNamespace()
		if err != nil {
			return nil, err
		}
		defer leave()
		id := fmt.Sprintf("bench%d", i)
		held = append(held, id)
		began := time.Now()
		_, err = podNetwork.Setup(ctx, id, ns, &v1.Pod{})
		took := time.Since(began)
		if err != nil {
			return nil, err
		}
		if i >= pods {
			times = append(times, took)
		}
	}
	return times, nil
}

// newNamespace creates a network namespace and returns its path. leave releases it.
func newNamespace() (path string, leave func(), err error) {
	made, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		path = fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		made <- err
		if err == nil {
			<-done
		}
	}()
	if err := <-made; err != nil {
		return "", nil, fmt.Errorf("creating a network namespace: %w", err)
	}
	return path, func() { close(done) }, nil
}
