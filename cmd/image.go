package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/images"
)

func (a *app) listImagesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List images",
		Example: "  podrun images list",
		Args:    argCount(0, 0),
		RunE: a.withImages(func(ctx context.Context, s imageStore, _ []string) error {
			return a.listImages(ctx, s)
		}),
	}
}

func (a *app) pullCommand() *cobra.Command {
	var registry registryFlags
	c := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images from their registries",
		Long: "pull fetches images whether or not they are present, and prints each with its digest. What an interrupted\n" +
			"pull has fetched is not fetched again.",
		Example: "  podrun images pull docker.io/library/nginx:1.29",
		Args:    argCount(1, many),
		RunE: func(c *cobra.Command, refs []string) error {
			if err := needRoot(c); err != nil {
				return err
			}
			o := a.connection()
			if err := registry.options(c.Flags(), &o); err != nil {
				return usage(c, err)
			}
			conn, err := agent.Connect(c.Context(), o)
			if err != nil {
				return unreachable(c.Context(), err)
			}
			defer conn.Close()
			for _, ref := range refs {
				shown := a.showPull(ref, conn.Driver.Pulling)
				pulled, err := conn.Driver.Pull(c.Context(), ref)
				shown(err)
				if err != nil {
					return err
				}
				fmt.Fprintln(a.out, pulled.ID)
			}
			return nil
		},
	}
	registry.add(c.Flags())
	fromEnvironment(c.Flags())
	return c
}

func (a *app) saveCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "save IMAGE...",
		Short:   "Save images to an archive",
		Long:    "save writes images, for this machine's platform, to an archive that load, docker and others can read.",
		Example: "  podrun images save -o web.tar web:1",
		Args:    argCount(1, many),
		RunE: a.withImages(func(ctx context.Context, s imageStore, refs []string) error {
			if file == "" || file == "-" {
				return imageError(s.Save(ctx, refs, a.out))
			}
			return imageError(writeWhole(file, func(to io.Writer) error { return s.Save(ctx, refs, to) }))
		}),
	}
	c.Flags().StringVarP(&file, "output", "o", "", "file to write (default: standard output)")
	return c
}

// writeWhole replaces the file that a path leads to: under another name first, so that whoever finds it finds it whole.
// What is no regular file, as /dev/stdout or a pipe, is written to as it is.
func writeWhole(path string, write func(io.Writer) error) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	for range 40 { // as many as the kernel follows
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Dir(path) + "/" + target // not cleaned: what ".." means depends on links
		}
		path = target
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	mode := fs.FileMode(0o644)
	if info != nil {
		mode = info.Mode().Perm()
		if was, is := info.Sys().(*syscall.Stat_t); is {
			_ = f.Chown(int(was.Uid), int(was.Gid)) // only root can give it away
		}
	}
	if err := errors.Join(write(f), f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (a *app) removeImagesCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:     "rm IMAGE...",
		Short:   "Remove images",
		Example: "  podrun images rm web:1",
		Args:    argCount(1, many),
		RunE: a.withImages(func(ctx context.Context, s imageStore, refs []string) error {
			var all error
			for _, ref := range refs {
				name, err := s.RemoveImage(ctx, ref, force)
				if err == nil {
					fmt.Fprintln(forTerminal(a.out), name)
				}
				all = errors.Join(all, err)
			}
			return imageError(all)
		}),
	}
	c.Flags().BoolVar(&force, "force", false, "remove them though containers are made of them; those run on")
	return c
}

// imageError gives an error of the image store its hint.
func imageError(err error) error {
	switch {
	case errors.Is(err, images.ErrUsed):
		return &failure{code: exitFailed, err: err, hint: "--force removes it all the same; containers that run go on"}
	case errors.Is(err, runtime.ErrNotFound):
		return &failure{code: exitFailed, err: err, hint: "podrun images lists those that are present"}
	}
	return err
}
