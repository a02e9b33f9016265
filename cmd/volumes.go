package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/volume"
)

func (a *app) volumesCommand() *cobra.Command {
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
			store := volume.New(volume.Options{Dirs: a.dirs(), Log: a.log})
			var errs []error
			for _, name := range names {
				err := store.RemoveClaim(c.Context(), namespace, name)
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
func (a *app) getVolumes(c *cobra.Command, f getFlags, names []string) error {
	if f.watch || len(names) > 0 {
		return usage(c, errors.New("volumes are listed all at once"))
	}
	in, err := parseForm(f.output)
	if err != nil {
		return usage(c, err)
	}
	all, err := volume.New(volume.Options{Dirs: a.dirs(), Log: a.log}).Claims()
	if err != nil {
		return err
	}
	shown := []volume.Claim{}
	for _, claim := range all {
		if f.allNamespaces || claim.Namespace == f.namespace {
			shown = append(shown, claim)
		}
	}
	switch {
	case in.tabular():
		return a.printVolumes(f, shown)
	case in.custom != nil:
		return a.printCustom(f, in, shown)
	case in.kind == "name":
		for _, claim := range shown {
			if _, err := fmt.Fprintln(a.Out, "volume/"+claim.Name); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := in.marshal(map[string]any{"items": shown})
	if err == nil {
		_, err = cli.ForTerminal(a.Out).Write(text)
	}
	return err
}

func (a *app) printCustom(f getFlags, in form, claims []volume.Claim) error {
	var rows [][]string
	if !f.noHeaders {
		rows = append(rows, in.headers())
	}
	for _, claim := range claims {
		row, err := customRow(in.custom, claim)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return (&table{out: a.Out}).print(rows...)
}

func (a *app) printVolumes(f getFlags, claims []volume.Claim) error {
	if len(claims) == 0 {
		_, err := fmt.Fprintln(a.ErrOut, "No volumes found")
		return err
	}
	rows := [][]string{{"NAME", "AGE", "PODS"}}
	for _, claim := range claims {
		pods := strings.Join(claim.Pods, ",")
		if pods == "" {
			pods = "<none>"
		}
		rows = append(rows, []string{claim.Name, duration.HumanDuration(time.Since(claim.Made)), pods})
	}
	for i := range rows {
		if f.output == "wide" {
			rows[i] = append(rows[i], append([]string{"PATH"}, paths(claims)...)[i])
		}
		if f.allNamespaces {
			rows[i] = append([]string{append([]string{"NAMESPACE"}, namespaces(claims)...)[i]}, rows[i]...)
		}
	}
	if f.noHeaders {
		rows = rows[1:]
	}
	return (&table{out: a.Out}).print(rows...)
}

func paths(claims []volume.Claim) []string {
	var out []string
	for _, claim := range claims {
		out = append(out, claim.Path)
	}
	return out
}

func namespaces(claims []volume.Claim) []string {
	var out []string
	for _, claim := range claims {
		out = append(out, claim.Namespace)
	}
	return out
}
