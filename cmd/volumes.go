package cmd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/volume"
)

func volumesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "volumes",
		Short: "Remove persistent volumes",
		Long: "volumes manages the volumes of persistentVolumeClaims, which are directories that outlive the pods\n" +
			"that use them. podrun get volumes lists them.",
		Example: "  podrun get volumes -A\n  podrun volumes rm data",
		Args:    argCount(0, 0),
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var namespace string
	rm := &cobra.Command{
		Use:     "rm NAME...",
		Short:   "Remove volumes and all data in them",
		Long:    "rm removes volumes and all data in them. It does not remove volumes that a pod uses.",
		Example: "  podrun volumes rm data -n default",
		Args:    argCount(1, many),
		RunE: func(c *cobra.Command, names []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			var errs []error
			for _, name := range names {
				err := volume.RemoveClaim(c.Context(), a.Dirs(), namespace, name)
				if err == nil {
					_, err = fmt.Fprintf(a.Out, "volume %s/%s removed\n", namespace, name)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
	rm.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the volumes")
	c.AddCommand(rm)
	return c
}

func isVolumes(kind string) bool {
	return slices.Contains([]string{
		"volumes", "volume", "pvc", "persistentvolumeclaims", "persistentvolumeclaim",
	}, kind)
}

// getVolumes lists the volumes of persistentVolumeClaims.
func getVolumes(a *app, c *cobra.Command, f getFlags, names []string) error {
	if f.watch || len(names) > 0 {
		return usage(c, errors.New("volumes are listed all at once"))
	}
	format, err := printers.ParseFormat(f.output)
	if err != nil {
		return usage(c, err)
	}
	all, err := volume.Claims(a.Dirs())
	if err != nil {
		return err
	}
	shown := []volume.Claim{}
	for _, claim := range all {
		if f.allNamespaces || claim.Namespace == f.namespace {
			shown = append(shown, claim)
		}
	}
	if len(shown) == 0 && format.Tabular() {
		_, err := fmt.Fprintln(a.ErrOut, "No volumes found")
		return err
	}
	printer := printers.Volumes{Format: format, NoHeaders: f.noHeaders, AllNamespaces: f.allNamespaces}
	return printer.Print(a.Out, shown)
}
