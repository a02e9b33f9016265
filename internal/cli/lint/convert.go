package lint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/convert"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/fileerror"
)

// ConvertHelp is the help of podrun convert.
const ConvertHelp = `convert prints manifests for podrun that are made of: pods as kubectl get -o yaml prints them;
Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs and CronJobs, which stay what they are; and
ReplicationControllers, each of which becomes one pod; ConfigMaps and Secrets, as they are; lists of
all these; and compose files, of which each service becomes a pod with the service's name.

Standard error names each thing that is left out or becomes something else, and what podrun
validate would say about the result. $NAME in a compose file is a variable of the environment, or of
the file .env beside it. A service for whose start another waits (depends_on) is always restarted unless
it has restart.

Exit code: 0 the result can be used; 1 it cannot, or something could not be converted; 2 a file cannot
be read.`

// Convert prints what package convert makes of files, names what that leaves out, and checks the
// result.
func Convert(ctx context.Context, paths []string, streams cli.Streams, o Options) error {
	var all bytes.Buffer
	failed := false
	for _, path := range once(paths) {
		made, err := convertOrEnd(ctx, path, streams.In)
		name := path
		if path == "-" {
			name = "standard input"
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", name, err)}
		}
		for _, dropped := range made.Dropped {
			fmt.Fprintf(streams.ErrOut, "%s: %s\n", name, cli.Plain(dropped))
		}
		for _, why := range made.Failed {
			failed = true
			fmt.Fprintf(streams.ErrOut, "%s: not converted: %s\n", name, cli.Plain(why))
		}
		for _, document := range made.Documents {
			if all.Len() > 0 {
				all.WriteString("---\n")
			}
			all.Write(document)
		}
	}
	if _, err := streams.Out.Write(all.Bytes()); err != nil {
		return err
	}
	if all.Len() > 0 {
		o.Stdin = &all
		findings, err := Check(ctx, []string{"-"}, o)
		if err != nil {
			return err
		}
		for _, e := range findings.Errors {
			failed = true
			fmt.Fprintf(streams.ErrOut, "the result cannot be used: line %d: %s: %s\n", e.Line, e.Field, cli.Plain(e.Message))
		}
	}
	if failed {
		return &cli.Error{Code: cli.ExitFailed, Err: errors.New("not everything could be converted")}
	}
	return nil
}

// convertOrEnd converts one file, or standard input, unless ctx ends first: a file may be a pipe to which nobody
// writes. What then goes on ends with the process.
func convertOrEnd(ctx context.Context, path string, stdin io.Reader) (convert.Result, error) {
	type outcome struct {
		made convert.Result
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		made, err := convertFile(path, stdin)
		done <- outcome{made, err}
	}()
	select {
	case o := <-done:
		return o.made, o.err
	case <-ctx.Done():
		return convert.Result{}, ctx.Err()
	}
}

// convertFile converts one file, or standard input. The file may be a pipe, as of a shell's <(COMMAND).
func convertFile(path string, stdin io.Reader) (convert.Result, error) {
	dir := "."
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return convert.Result{}, fileerror.Cause(err)
		}
		defer f.Close()
		stdin, dir = f, filepath.Dir(path)
	}
	text, err := readBounded(stdin)
	if err != nil {
		return convert.Result{}, fileerror.Cause(err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return convert.Result{}, err
	}
	return convert.File(text, convert.Options{Dir: dir, Env: os.LookupEnv, ReadFile: readNamed})
}

// readNamed reads a file that a compose file names; its errors name it. The author of the compose file may have named
// anything: a device has no end, and a FIFO perhaps no writer.
func readNamed(path string) ([]byte, error) {
	f, err := sys.OpenRegular("/", strings.TrimPrefix(path, "/"), sys.LinksInRoot, os.O_RDONLY)
	if err != nil {
		return nil, fileerror.Named(err)
	}
	defer f.Close()
	text, err := readBounded(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, fileerror.Cause(err))
	}
	return text, nil
}

// readBounded reads to the end of what has at most the size of a manifest.
func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, convert.MaxText+1))
	if err == nil && len(text) > convert.MaxText {
		err = fmt.Errorf("has more than %d MiB", convert.MaxText>>20)
	}
	return text, err
}
