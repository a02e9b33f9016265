package runtimetest_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/runtime/runtimetest"
)

func TestFake(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		r := fake.New("boot")
		r.AddImage("image:1", fake.Script{})
		r.AddImage("bad:1", fake.Script{StartError: errors.New("no such command")})
		return runtimetest.Subject{
			Runtime: r, Image: "image:1",
			HasCgroup:   func(uid pod.UID) bool { return fake.HasCgroup(r.Engine, uid) },
			Exit:        func(_ *testing.T, id string, code int) { r.Exit(id, code) },
			CannotStart: func(c *v1.Container) { c.Image = "bad:1" },
		}
	})
}
