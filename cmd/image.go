package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/progress"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/images"
)

func listImagesCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List images",
		Example: "  podrun images list",
		Args:    argCount(0, 0),
		RunE: withImages(a, func(ctx context.Context, s imageStore, _ []string) error {
			return listImages(a, ctx, s)
		}),
	}
}

func pullCommand(a *app) *cobra.Command {
	var registry flags.Registry
	c := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images from their registries",
		Long: "pull fetches images, whether or not they are present, and prints each with its digest. It does not\n" +
			"fetch again what an interrupted pull has fetched.",
		Example: "  podrun images pull docker.io/library/nginx:1.29",
		Args:    argCount(1, many),
		RunE: func(c *cobra.Command, refs []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			o := a.connection()
			if err := registry.Options(c.Flags(), &o); err != nil {
				return usage(c, err)
			}
			conn, err := agent.Connect(c.Context(), o)
			if err != nil {
				return unreachable(c.Context(), err)
			}
			defer conn.Close()
			for _, ref := range refs {
				shown := progress.Pull(a.ErrOut, ref, conn.Driver.Pulling)
				pulled, err := conn.Driver.Pull(c.Context(), ref)
				shown(err)
				if err != nil {
					return err
				}
				fmt.Fprintln(a.Out, pulled.ID)
			}
			return nil
		},
	}
	registry.Add(c.Flags())
	flags.FromEnvironment(c.Flags())
	return c
}

func saveCommand(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "save IMAGE...",
		Short: "Save images to an archive",
		Long: "save writes images, for the platform of this machine, to an archive that podrun images load,\n" +
			"docker and other tools can read.",
		Example: "  podrun images save -o web.tar web:1",
		Args:    argCount(1, many),
		RunE: withImages(a, func(ctx context.Context, s imageStore, refs []string) error {
			if file == "" || file == "-" {
				return imageError(s.Save(ctx, refs, a.Out))
			}
			return imageError(cli.WriteAtomic(file, func(to io.Writer) error { return s.Save(ctx, refs, to) }))
		}),
	}
	c.Flags().StringVarP(&file, "output", "o", "", "file to write (default: standard output)")
	return c
}

func removeImagesCommand(a *app) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:     "rm IMAGE...",
		Short:   "Remove images",
		Example: "  podrun images rm web:1",
		Args:    argCount(1, many),
		RunE: withImages(a, func(ctx context.Context, s imageStore, refs []string) error {
			var all error
			for _, ref := range refs {
				name, err := s.RemoveImage(ctx, ref, force)
				if err == nil {
					fmt.Fprintln(cli.ForTerminal(a.Out), name)
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
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "--force removes it anyway; running containers continue"}
	case errors.Is(err, runtime.ErrNotFound):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "podrun images lists the images that are present"}
	}
	return err
}
