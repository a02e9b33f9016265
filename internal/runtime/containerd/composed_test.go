package containerd_test

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/sys"
)

// Runtime is the port as podrun composes it: this package's driver below the pods' checkpoints. A
// method that both have is that of checkpointed.Runtime.
type Runtime struct {
	*checkpointed.Runtime
	below
	// Driver is the driver itself.
	Driver *containerd.Driver
}

// Embedded so deep, a method of the driver's gives way to one of the port's.
type (
	below  struct{ deeper }
	deeper struct{ *containerd.Driver }
)

// compose returns a Runtime without any clean-up after the test.
func compose(t testing.TB, o containerd.Options, plugins ...device.Plugins) (*Runtime, error) {
	t.Helper()
	boot, err := sys.BootID()
	if err != nil {
		t.Fatal(err)
	}
	return composeIn(boot, o, plugins...)
}

// composeIn is compose with the given boot id.
func composeIn(boot string, o containerd.Options, plugins ...device.Plugins) (*Runtime, error) {
	store := checkpoint.NewStore(o.Dirs, o.Log)
	present := func() (func(string) bool, error) {
		_, err := store.List()
		return store.MayName, err
	}
	named := map[v1.ResourceName][]string{"podrun.example/log": {"podrun.example/log=one"}}
	of := device.Options{Dirs: o.Dirs, Named: named, Present: present}
	for _, p := range plugins {
		of.Plugins = p
	}
	o.Devices = device.New(of)
	d, err := containerd.New(context.Background(), o)
	if err != nil {
		return nil, err
	}
	port := checkpointed.New(checkpointed.Options{
		Driver: d, Store: store, Boot: func() string { return boot }, Dirs: o.Dirs, Log: o.Log,
	})
	return &Runtime{Runtime: port, below: below{deeper{d}}, Driver: d}, nil
}

// neverRan changes the checkpoint so that the start of the instance was interrupted just now,
// before its process ran.
func neverRan(t testing.TB, r *Runtime, c pod.Container) {
	t.Helper()
	err := r.Runtime.Store().Update(c.UID, func(kept *checkpoint.Checkpoint) {
		i := kept.Instance(c.ID)
		i.State, i.StartedAt, i.Notes = pod.Created, time.Now(), pod.Notes{}
	})
	if err != nil {
		t.Fatal(err)
	}
}
