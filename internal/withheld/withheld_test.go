package withheld

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const spec = `{"ociVersion":"1.0.2","process":{"args":["sh","$(PASS)"],"env":["A=1","PODRUN_WITHHELD=%"],"user":{"uid":0}},"root":{"path":"rootfs"},"linux":{"resources":{"memory":{"limit":9223372036854775807}}}}`

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "id")
	kept := Process{Args: []string{"sh", "word"}, Env: []string{"A=1", "PASS=word"}}
	if err := errors.Join(Write(file, kept), os.WriteFile(dir+"/config.json", []byte(strings.Replace(spec, "%", file, 1)), 0o600)); err != nil {
		t.Fatal(err)
	}
	args := []string{"create", "--bundle", dir, "--pid-file", "p", "id"}
	if err := forCreate(args); err != nil {
		t.Fatal(err)
	}
	if want := []string{"create", "--bundle", file + ".bundle", "--pid-file", "p", "id"}; !slices.Equal(args, want) {
		t.Errorf("%q", args)
	}
	got, err := os.ReadFile(file + ".bundle/config.json")
	var out struct {
		Process struct {
			Args, Env []string
		}
		Root struct{ Path string }
	}
	if err = errors.Join(err, json.Unmarshal(got, &out)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out.Process.Args, kept.Args) || !slices.Equal(out.Process.Env, kept.Env) || out.Root.Path != dir+"/rootfs" {
		t.Errorf("%s", got)
	}
	if !strings.Contains(string(got), "9223372036854775807") || !strings.Contains(string(got), `"user":{"uid":0}`) {
		t.Errorf("not all is kept: %s", got)
	}
}

func TestCreateWithoutAMark(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/config.json", []byte(`{"process":{"env":["A=1"]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"create", "-b", dir, "id"}
	if err := forCreate(args); err != nil || args[2] != dir {
		t.Errorf("%q, %v", args, err)
	}
	if err := forCreate([]string{"create", "--bundle", "/none", "id"}); err == nil {
		t.Error("no error without a bundle")
	}
}

func TestExec(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "id")
	text := strings.Replace(`{"args":["env"],"env":["A=2","PODRUN_WITHHELD=%","TERM=xterm"]}`, "%", file, 1)
	err := errors.Join(Write(file, Process{Env: []string{"A=1", "PASS=word"}}), os.WriteFile(dir+"/p", []byte(text), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"exec", "--process", dir + "/p", "--detach", "id"}
	if err := forExec(args); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(args[2])
	if want := `{"args":["env"],"env":["A=2","TERM=xterm","PASS=word"]}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if !strings.HasPrefix(args[2], "/proc/self/fd/") {
		t.Errorf("written to %s", args[2])
	}
}

func TestCommandAt(t *testing.T) {
	for line, want := range map[string]int{
		"--root /r --log create --log-format json create --bundle b id": 6,
		"--debug exec id":  1,
		"--root=/r delete": 1,
		"--version":        -1,
	} {
		if got := commandAt(strings.Fields(line)); got != want {
			t.Errorf("%s: %d", line, got)
		}
	}
}

func TestDispatchIsForTheStandInOnly(t *testing.T) {
	for _, args := range [][]string{nil, {"podrun"}, {"/x/containerd-shim-runc-v2"}} {
		if _, handled := Dispatch(args); handled {
			t.Errorf("%q", args)
		}
	}
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	write := func(at string) string {
		if err := os.WriteFile(at, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return at
	}
	runc, other := write(dir+"/runc"), write(dir+"/other")
	t.Setenv("PATH", dir)
	own := filepath.Join(dir, "own", "podrun-runc")
	for range 2 { // each start does it
		if err := StandFor(own, "other"); err != nil {
			t.Fatal(err)
		}
	}
	if err := StandFor(own, "/another"); err == nil {
		t.Error("it stands for two")
	}
	for path, want := range map[string]string{filepath.Join(dir, "podrun-runc"): runc, own: other} {
		if got, err := program(path); err != nil || got != want {
			t.Errorf("%s runs %s, %v; want %s", path, got, err, want)
		}
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if got, err := program(own); err == nil {
		t.Errorf("what is gone is replaced by %s", got)
	}
}
