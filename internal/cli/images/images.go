// Package images lists, pulls, loads, saves and removes images for podrun images. It is given the
// image store. An image can have any name, so names are escaped on a terminal.
//
// It does not connect to containerd. Begin reading at List and Pull.
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/distribution/reference"
	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/progress"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/sys/fileerror"
)

// Store is the part of the containerd driver that the images commands need.
type Store interface {
	Load(ctx context.Context, archive io.Reader) ([]string, error)
	ListImages(ctx context.Context) ([]pod.StoredImage, error)
	PruneImages(ctx context.Context, except ...string) ([]string, error)
	RemoveImage(ctx context.Context, ref string, force bool) (string, error)
	Save(ctx context.Context, refs []string, archive io.Writer) error
}

// Puller pulls images and reports the progress of pulls; see runtime.Images.
type Puller interface {
	Pull(ctx context.Context, ref string, logins ...[]byte) (pod.Image, error)
	Pulling(ref string) (pod.Progress, bool)
}

// List prints all images.
func List(ctx context.Context, out io.Writer, s Store, f printers.Format) error {
	all, err := s.ListImages(ctx)
	if err != nil {
		return err
	}
	return printers.Images(out, f, all)
}

// Names returns the names of the images but those in exclude, for completion; none if they cannot be listed.
func Names(ctx context.Context, s Store, exclude []string) []string {
	all, _ := s.ListImages(ctx)
	var names []string
	for _, i := range all {
		if plain := summary.PlainLine(i.Name); plain == i.Name && !slices.Contains(exclude, i.Name) {
			names = append(names, i.Name)
		}
	}
	return names
}

// Load loads the images of an archive, or of standard input if file is -, prints their names and returns them.
func Load(ctx context.Context, streams cli.Streams, s Store, file string) (names []string, err error) {
	archive := streams.In
	if file != "-" {
		f, err := openArchive(ctx, file)
		if err != nil {
			return nil, &cli.Error{Code: cli.ExitUsage, Err: err}
		}
		defer f.Close()
		archive = f
	}
	names, err = s.Load(ctx, archive)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return names, errors.Join(cli.PrintNames(streams.Out, names...), err)
}

// LoadFlags are the flags of podrun images load.
type LoadFlags struct{ inputs []string }

// Add adds the flags to f.
func (l *LoadFlags) Add(f *pflag.FlagSet) {
	f.StringArrayVarP(&l.inputs, "input", "i", nil, "file to load, as an argument FILE is; repeatable")
}

// Archives returns the files of the flags and the arguments, of which there must be one at least.
func (l *LoadFlags) Archives(args []string) ([]string, error) {
	all := slices.Concat(l.inputs, args)
	if len(all) == 0 {
		return nil, errors.New("an argument is missing: the FILE of podrun images load")
	}
	return all, nil
}

// openArchive opens a file, or waits until somebody writes to a FIFO.
func openArchive(ctx context.Context, file string) (*os.File, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, fileerror.Named(err)
	case info.IsDir():
		return nil, fmt.Errorf("%s: is a directory, not an archive of images", file)
	case info.Mode().IsRegular() && info.Size() == 0:
		return nil, fmt.Errorf("%s: is empty, not an archive of images", file)
	}
	var f *os.File
	opened := make(chan error, 1)
	go func() {
		var err error
		f, err = os.Open(file)
		opened <- err
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case err := <-opened:
		return f, fileerror.Named(err)
	}
}

// Same returns whether an image is one of refs, however they are written: nginx:1 is docker.io/library/nginx:1.
func Same(refs []string) func(image string) bool {
	full := func(ref string) string {
		if named, err := reference.ParseDockerRef(ref); err == nil {
			return named.String()
		}
		return ref
	}
	all := map[string]bool{}
	for _, ref := range refs {
		all[full(ref)] = true
	}
	return func(image string) bool { return all[full(image)] }
}

// Pull pulls images one after the other, prints their progress, and the ID of each.
func Pull(ctx context.Context, streams cli.Streams, p Puller, refs []string) error {
	for _, ref := range refs {
		end := progress.Pull(streams.ErrOut, ref, p.Pulling)
		pulled, err := p.Pull(ctx, ref)
		end(err)
		if err != nil {
			return err
		}
		if err := cli.PrintNames(streams.Out, pulled.ID); err != nil {
			return err
		}
	}
	return nil
}

// Save writes images to a file, or to out if file is empty or -.
func Save(ctx context.Context, out io.Writer, s Store, refs []string, file string) error {
	if file == "" || file == "-" {
		return withHint(s.Save(ctx, refs, out))
	}
	err := withHint(cli.WriteAtomic(file, func(to io.Writer) error { return s.Save(ctx, refs, to) }))
	if failed := (&fs.PathError{}); errors.As(err, &failed) {
		return fmt.Errorf("--output %s: %w", file, failed.Err)
	}
	return err
}

// RemoveHelp is the help of podrun images rm.
const RemoveHelp = "rm removes images. Of an image with several names it removes the name that is given. The last name of\n" +
	"an image that a container or a volume is made of stays, unless --force is given."

// Remove removes images and prints the names of those that it removed.
func Remove(ctx context.Context, out io.Writer, s Store, refs []string, force bool) error {
	var all error
	for _, ref := range refs {
		name, err := s.RemoveImage(ctx, ref, force)
		if err == nil {
			err = cli.PrintNames(out, name)
		}
		all = errors.Join(all, err)
	}
	return withHint(all)
}

// Prune removes unused images and prints their names. held returns those that a rollback would run, which stay.
func Prune(ctx context.Context, out io.Writer, s Store, held func() ([]string, error)) error {
	refs, err := held()
	if err != nil {
		return fmt.Errorf("nothing is removed: a rollback may need it: %w", err)
	}
	names, err := s.PruneImages(ctx, refs...)
	return errors.Join(cli.PrintNames(out, names...), err)
}

// withHint adds a hint to an error of the image store.
func withHint(err error) error {
	var fix *runtime.PermanentError
	switch {
	case errors.Is(err, images.ErrUsed):
		return &cli.Error{
			Code: cli.ExitFailed,
			Err:  err,
			Hint: "--force removes it anyway; running containers continue",
		}
	case errors.Is(err, runtime.ErrNotFound):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "podrun images lists the images that are present"}
	case errors.As(err, &fix) && fix.Fix != "":
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: fix.Fix}
	}
	return err
}
