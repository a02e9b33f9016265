package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

const (
	// addLimit bounds one sandbox's ADD; the kubelet gives the runtime as much. delLimit bounds its DEL.
	addLimit = 2 * time.Minute
	delLimit = time.Minute
	// A plugin that is just being installed is tried again.
	busyTries = 5
	busyDelay = time.Second
)

// pluginExec executes plugins for CNI's library. A plugin is killed with its process group when the context ends.
type pluginExec struct {
	version.PluginDecoder
	log *slog.Logger
}

var _ invoke.Exec = (*pluginExec)(nil)

// FindInPath implements invoke.Exec.
func (e *pluginExec) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}

// ExecPlugin implements invoke.Exec.
func (e *pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := e.execute(ctx, path, stdin, env)
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries {
			return out, err
		}
		select {
		case <-time.After(busyDelay):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (e *pluginExec) execute(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	out, err := sys.Program{Name: path, Env: env, Stdin: stdin}.Run(ctx, addLimit)
	if len(out.Stderr) > 0 {
		e.log.Debug("CNI plugin wrote to its standard error", "plugin", path, "text", string(out.Stderr))
	}
	switch {
	case err == nil:
		return out.Stdout, checkOutput(out.Stdout)
	case ctx.Err() != nil, !out.Started:
		return nil, fmt.Errorf("plugin %w", err)
	}
	return nil, pluginError(err, out.Stdout, out.Stderr)
}

// checkOutput refuses lists with nothing in the place of an entry: CNI's library takes each for one, and would end
// podrun. What is no JSON at all the library refuses itself.
func checkOutput(stdout []byte) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(stdout, &fields) != nil {
		return nil
	}
	for name, field := range fields {
		var entries []*json.RawMessage
		if json.Unmarshal(field, &entries) == nil && slices.Contains(entries, nil) {
			return fmt.Errorf("plugin wrote a result whose %q has an entry that is null", name)
		}
	}
	return nil
}

// pluginError is what a plugin that failed says about it, on its standard output as CNI's specification has it.
func pluginError(err error, stdout, stderr []byte) error {
	var said types.Error
	if len(stdout) > 0 && json.Unmarshal(stdout, &said) == nil {
		return &said
	}
	if text := bytes.TrimSpace(append(stdout, stderr...)); len(text) > 0 {
		return fmt.Errorf("%w: %q", err, text)
	}
	return err
}
