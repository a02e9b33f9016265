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
		Long: "pull fetches images, whether or not they are present, and prints each with its digest. It does not\n" +
			"fetch again what an interrupted pull has fetched.",
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
		Use:   "save IMAGE...",
		Short: "Save images to an archive",
		Long: "save writes images, for the platform of this machine, to an archive that podrun images load,\n" +
			"docker and other tools can read.",
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

// writeWhole replaces the file that path leads to. It writes a temporary file in the same directory
// and renames it, so that readers never see a partial file. It follows symbolic links. A path that
// is not a regular file, such as /dev/stdout or a pipe, is written to directly.
func writeWhole(path string, write func(io.Writer) error) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	for range 40 { // the kernel follows at most 40 links
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Dir(path) + "/" + target // not cleaned, because links change the meaning of ".."
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
			_ = f.Chown(int(was.Uid), int(was.Gid)) // fails unless the user is root
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
	c.Flags().BoolVar(&force, "force", false, "remove images even if containers use them; running containers continue")
	return c
}

// imageError adds a hint to an error of the image store.
func imageError(err error) error {
	switch {
	case errors.Is(err, images.ErrUsed):
		return &failure{code: exitFailed, err: err, hint: "--force removes it anyway; running containers continue"}
	case errors.Is(err, runtime.ErrNotFound):
		return &failure{code: exitFailed, err: err, hint: "podrun images lists the images that are present"}
	}
	return err
}
