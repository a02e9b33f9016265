package cni

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
	// addLimit bounds the ADD of one sandbox; the kubelet allows the runtime the same time.
	// delLimit bounds its DEL.
	addLimit = 2 * time.Minute
	delLimit = time.Minute
	// A plugin whose file is being written (ETXTBSY), because it is just being installed, is tried
	// again.
	busyTries = 5
	busyDelay = time.Second
)

// pluginExec runs plugins for CNI's library. When the context ends, it kills the plugin with its
// process group.
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
		e.log.Debug("CNI plugin wrote to standard error", "plugin", path, "text", string(out.Stderr))
	}
	switch {
	case err == nil:
		return out.Stdout, checkOutput(out.Stdout)
	case ctx.Err() != nil, !out.Started:
		return nil, fmt.Errorf("plugin %w", err)
	}
	return nil, pluginError(err, out.Stdout, out.Stderr)
}

// checkOutput returns an error if a list of the result has an entry that is null: CNI's library
// dereferences each entry, which would crash podrun. It accepts output that is not JSON, because
// the library reports that itself.
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

// pluginError returns the error that a failed plugin wrote to its standard output, as CNI's
// specification requires, else err with the plugin's output.
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
