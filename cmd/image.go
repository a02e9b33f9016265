package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/images"
	"podrun.io/podrun/internal/cli/progress"
)

func listImagesCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List images",
		Example: "  podrun images list",
		Args:    argCount(0, 0),
		RunE: withImages(a, func(ctx context.Context, s images.Store, _ []string) error {
			return images.List(ctx, a.Out, s)
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
			conn, err := connection.Open(c.Context(), o)
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
		RunE: withImages(a, func(ctx context.Context, s images.Store, refs []string) error {
			return images.Save(ctx, a.Out, s, refs, file)
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
		RunE: withImages(a, func(ctx context.Context, s images.Store, refs []string) error {
			return images.Remove(ctx, a.Out, s, refs, force)
		}),
	}
	c.Flags().BoolVar(&force, "force", false, "remove images even if containers use them; running containers continue")
	return c
}
