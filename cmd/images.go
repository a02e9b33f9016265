package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/pod"
)

func imagesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "images",
		Short: "List, pull, load, save and remove images",
		Long:  "images lists the images in podrun's containerd namespace.",
		Example: "  podrun images\n  podrun images pull docker.io/library/nginx:1.29\n" +
			"  podrun images load web.tar\n  podrun images prune",
		Args: argCount(0, 0),
		RunE: withImages(a, func(ctx context.Context, s imageStore, _ []string) error {
			return listImages(a, ctx, s)
		}),
	}
	load := &cobra.Command{
		Use:     "load FILE...",
		Short:   "Load images from archives",
		Long:    "load loads images from OCI or Docker archives, compressed or not. The file - is standard input.",
		Example: "  podrun images load web.tar\n  docker save web:1 | podrun images load -",
		Args:    argCount(1, many),
		RunE: withImages(a, func(ctx context.Context, s imageStore, files []string) error {
			var all error
			for _, file := range files {
				all = errors.Join(all, loadImages(a, ctx, s, file))
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
		RunE: withImages(a, func(ctx context.Context, s imageStore, _ []string) error {
			names, err := s.PruneImages(ctx)
			for _, name := range names {
				fmt.Fprintln(cli.ForTerminal(a.Out), name)
			}
			return err
		}),
	}
	c.AddCommand(listImagesCommand(a), pullCommand(a), load, saveCommand(a), removeImagesCommand(a), prune)
	return c
}

// imageStore is the part of the containerd driver that the images commands need.
type imageStore interface {
	Load(ctx context.Context, archive io.Reader) ([]string, error)
	ListImages(ctx context.Context) ([]pod.StoredImage, error)
	PruneImages(ctx context.Context) ([]string, error)
	RemoveImage(ctx context.Context, ref string, force bool) (string, error)
	Save(ctx context.Context, refs []string, archive io.Writer) error
}

func withImages(a *app, do func(context.Context, imageStore, []string) error) func(*cobra.Command, []string) error {
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

func listImages(a *app, ctx context.Context, s imageStore) error {
	all, err := s.ListImages(ctx)
	if err != nil {
		return err
	}
	return printers.Images(a.Out, all)
}

func loadImages(a *app, ctx context.Context, s imageStore, file string) error {
	archive := a.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return &cli.Error{Code: cli.ExitUsage, Err: err}
		}
		defer f.Close()
		archive = f
	}
	names, err := s.Load(ctx, archive)
	for _, name := range names {
		fmt.Fprintln(cli.ForTerminal(a.Out), name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
