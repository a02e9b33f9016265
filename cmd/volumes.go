package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/names"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/claims"
)

func volumesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "volumes",
		Short: "Remove persistent volumes",
		Long: "volumes manages the volumes of persistentVolumeClaims, which outlive the pods that use them: directories,\n" +
			"and what CSI drivers have made for StorageClasses. podrun get volumes lists them.",
		Example: "  podrun get volumes -A\n  podrun volumes rm data",
		Args:    argCount(0, 0),
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var namespace string
	rm := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove volumes and all data in them",
		Long: "rm removes volumes and all data in them; a driver deletes what it has made, and a PersistentVolume of the\n" +
			"manifests keeps its data. It does not remove volumes that a pod uses.",
		Example: "  podrun volumes rm data -n default",
		Args:    argCount(1, unlimited),
		RunE: func(c *cobra.Command, names []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			var errs []error
			for _, name := range names {
				claim := pod.Key{Namespace: namespace, Name: name}
				kept, err := claims.Remove(c.Context(), a.Dirs(), claim, a.pods().Waiting)
				if err == nil {
					_, err = fmt.Fprintf(a.Out, "volume %s removed%s\n", claim, kept)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
	rm.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the volumes")
	rm.ValidArgsFunction = a.completes(func(_ *cobra.Command, args []string, _ string) []string {
		return names.Volumes(a.Dirs(), namespace, args)
	})
	a.completeFlags(rm)
	c.AddCommand(rm)
	return c
}
