package cmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/images"
)

func imagesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "images",
		Short: "List, pull, load, save and remove images",
		Long:  "images lists the images in podrun's containerd namespace.",
		Example: "  podrun images\n  podrun images pull docker.io/library/nginx:1.29\n" +
			"  podrun images load web.tar\n  podrun images prune",
		Args: argCount(0, 0),
		RunE: withImages(a, func(ctx context.Context, s images.Store, _ []string) error {
			return images.List(ctx, a.Out, s)
		}),
	}
	load := &cobra.Command{
		Use:     "load FILE...",
		Short:   "Load images from archives",
		Long:    "load loads images from OCI or Docker archives, compressed or not. The file - is standard input.",
		Example: "  podrun images load web.tar\n  docker save web:1 | podrun images load -",
		Args:    argCount(1, many),
		RunE: withImages(a, func(ctx context.Context, s images.Store, files []string) error {
			var all error
			for _, file := range files {
				all = errors.Join(all, images.Load(ctx, a.Streams, s, file))
			}
			return all
		}),
	}
	prune := &cobra.Command{
		Use:   "prune",
		Short: "Remove unused images",
		Long: "prune removes images that no container, running or not, and no volume of a pod uses, except pinned\n" +
			"images. It also removes what interrupted pulls have fetched.",
		Example: "  podrun images prune",
		Args:    argCount(0, 0),
		RunE: withImages(a, func(ctx context.Context, s images.Store, _ []string) error {
			return images.Prune(ctx, a.Out, s)
		}),
	}
	c.AddCommand(listImagesCommand(a), pullCommand(a), load, saveCommand(a), removeImagesCommand(a), prune)
	return c
}

// withImages returns the function of a command that works on the image store.
func withImages(
	a *app,
	do func(context.Context, images.Store, []string) error,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := cli.NeedRoot(c.CommandPath()); err != nil {
			return err
		}
		conn, err := a.connect(c.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		return do(c.Context(), conn.Driver, args)
	}
}
