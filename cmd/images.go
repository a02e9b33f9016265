package cmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/agenterror"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/images"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
)

func imagesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "images",
		Short:   "List, pull, load, save and remove images",
		Long:    "images lists the images in podrun's containerd namespace.",
		Example: images.Example,
	}
	listsImages(a, c)
	var loads images.LoadFlags
	load := &cobra.Command{
		Use:     "load FILE...",
		Short:   "Load images from archives",
		Long:    images.LoadHelp,
		Example: "  podrun images load web.tar\n  docker save web:1 | podrun images load -",
		Args: func(c *cobra.Command, args []string) error {
			_, err := loads.Archives(args)
			return usage(c, err)
		},
		RunE: withImages(a, func(ctx context.Context, s images.Store, args []string) error {
			files, _ := loads.Archives(args)
			var all error
			for _, file := range files {
				names, err := images.Load(ctx, a.Streams, s, file)
				a.wakeForImages(names)
				all = errors.Join(all, err)
			}
			return all
		}),
	}
	loads.Add(load.Flags())
	prune := &cobra.Command{
		Use:     "prune",
		Short:   "Remove unused images",
		Long:    images.PruneHelp,
		Example: "  podrun images prune",
		Args:    argCount(0, 0),
		RunE: withImages(a, func(ctx context.Context, s images.Store, _ []string) error {
			return images.Prune(ctx, a.Out, s, func() ([]string, error) { return query.HeldImages(a.Dirs()) })
		}),
	}
	c.AddCommand(listImagesCommand(a), outdatedCommand(a), pullCommand(a), load, saveCommand(a),
		removeImagesCommand(a), prune)
	return c
}

func listImagesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List images",
		Example: "  podrun images list\n  podrun images list -o json",
	}
	listsImages(a, c)
	return c
}

// listsImages makes a command list the images.
func listsImages(a *app, c *cobra.Command) {
	var output string
	c.Args = argCount(0, 0)
	c.RunE = func(c *cobra.Command, args []string) error {
		format, err := printers.ParseFormat(output)
		if err != nil {
			return usage(c, err)
		}
		return withImages(a, func(ctx context.Context, s images.Store, _ []string) error {
			return images.List(ctx, a.Out, s, format)
		})(c, args)
	}
	c.Flags().StringVarP(&output, "output", "o", "", "output format: "+printers.Formats)
	a.completeFlags(c)
}

func pullCommand(a *app) *cobra.Command {
	var registry flags.Registry
	c := &cobra.Command{
		Use:     "pull IMAGE...",
		Short:   "Pull images from their registries",
		Long:    images.PullHelp,
		Example: "  podrun images pull docker.io/library/nginx:1.29",
		Args:    argCount(1, unlimited),
	}
	c.RunE = withRegistries(a, &registry, func(ctx context.Context, s images.Remote, refs []string) error {
		err := images.Pull(ctx, a.Streams, s, refs)
		a.wakeForImages(refs)
		return err
	})
	registry.Add(c.Flags())
	c.ValidArgsFunction = a.completes(a.images)
	return c
}

func outdatedCommand(a *app) *cobra.Command {
	var registry flags.Registry
	var output string
	c := &cobra.Command{
		Use:     "outdated [IMAGE...]",
		Short:   "List the images that registries have newer ones of",
		Long:    images.OutdatedHelp,
		Example: "  podrun images outdated\n  podrun images outdated -o json",
	}
	c.RunE = func(c *cobra.Command, refs []string) error {
		format, err := printers.ParseFormat(output)
		if err != nil {
			return usage(c, err)
		}
		return withRegistries(a, &registry, func(ctx context.Context, s images.Remote, refs []string) error {
			return images.Outdated(ctx, a.Streams, s, refs, format)
		})(c, refs)
	}
	registry.Add(c.Flags())
	c.Flags().StringVarP(&output, "output", "o", "", "output format: "+printers.Formats)
	c.ValidArgsFunction = a.completes(a.images)
	a.completeFlags(c)
	return c
}

// withRegistries returns the function of a command that works on the image store and with registries.
func withRegistries(
	a *app, registry *flags.Registry, do func(context.Context, images.Remote, []string) error,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, refs []string) error {
		if err := cli.NeedRoot(c.CommandPath()); err != nil {
			return err
		}
		o := a.connection()
		if err := registry.Options(c.Flags(), &o); err != nil {
			return usage(c, err)
		}
		conn, err := connection.Open(c.Context(), o)
		if err != nil {
			return agenterror.Unreachable(c.Context(), err)
		}
		defer conn.Close()
		return do(c.Context(), conn.Driver, refs)
	}
}

func saveCommand(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "save IMAGE...",
		Short:   "Save images to an archive",
		Long:    images.SaveHelp,
		Example: "  podrun images save -o web.tar web:1",
		Args:    argCount(1, unlimited),
		RunE: withImages(a, func(ctx context.Context, s images.Store, refs []string) error {
			return images.Save(ctx, a.Out, s, refs, file)
		}),
	}
	c.Flags().StringVarP(&file, "output", "o", "", "file to write (default: standard output)")
	c.ValidArgsFunction = a.completes(a.images)
	return c
}

func removeImagesCommand(a *app) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:     "rm IMAGE...",
		Short:   "Remove images",
		Long:    images.RemoveHelp,
		Example: "  podrun images rm web:1",
		Args:    argCount(1, unlimited),
		RunE: withImages(a, func(ctx context.Context, s images.Store, refs []string) error {
			return images.Remove(ctx, a.Out, s, refs, force)
		}),
	}
	c.Flags().BoolVar(&force, "force", false, "remove images even if containers use them; running containers continue")
	c.ValidArgsFunction = a.completes(a.images)
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
