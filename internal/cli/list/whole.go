package list

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/status/plugins"
	"podrun.io/podrun/internal/volume"
)

// Whole lists what is listed all at once, which is not of pods: volumes or plugins, as the resource type says.
func (l *Lister) Whole(kind string) func(Options) error {
	if query.IsPlugins(kind) {
		return l.plugins
	}
	return l.volumes
}

// printed prints a list of things, or that there are none of them.
func printed[T any](l *Lister, o Options, all []T, what string, columns printers.List[T]) error {
	if err := printers.Sort(o.Order, all); err != nil {
		return err
	}
	if len(all) == 0 && o.Format.Tabular() {
		_, err := fmt.Fprintf(l.Streams.ErrOut, "No %s found\n", what)
		return err
	}
	columns.Format, columns.NoHeaders = o.Format, o.NoHeaders
	return columns.Print(l.Streams.Out, all)
}

// volumes lists the volumes of persistentVolumeClaims of the selected namespaces.
func (l *Lister) volumes(o Options) error {
	all, err := volume.Claims(l.Reader.Dirs)
	if err != nil {
		return err
	}
	selected := []volume.Claim{}
	for _, claim := range all {
		if o.Selection.AllNamespaces || claim.Namespace == o.Selection.Namespace {
			selected = append(selected, claim)
		}
	}
	header := []string{"NAME", "AGE", "PODS"}
	if o.Format.Wide() {
		header = append(header, "PATH")
	}
	if o.Selection.AllNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	return printed(l, o, selected, "volumes", printers.List[volume.Claim]{
		Header: header,
		Name:   func(claim volume.Claim) string { return "volume/" + claim.Name },
		Row: func(claim volume.Claim) []string {
			pods := printers.OrNone(strings.Join(claim.Pods, ","))
			row := []string{claim.Name, duration.HumanDuration(time.Since(claim.Made)), pods}
			if o.Format.Wide() {
				row = append(row, cmp.Or(claim.Path, claim.Driver+" "+claim.Handle))
			}
			if o.Selection.AllNamespaces {
				row = append([]string{claim.Namespace}, row...)
			}
			return row
		},
	})
}

// plugins lists the plugins that serve --plugins knows.
func (l *Lister) plugins(o Options) error {
	all, err := plugins.List(l.Reader.Dirs)
	if err != nil {
		return err
	}
	if o.Format.Tabular() {
		l.WarnOfAge(nil)
	}
	header := []string{"NAME", "TYPE", "STATUS", "DEVICES", "HEALTHY", "USED", "PODS"}
	if o.Format.Wide() {
		header = append(header, "SOCKET")
	}
	return printed(l, o, all, "plugins", printers.List[plugins.Plugin]{
		Header: header,
		Name:   func(p plugins.Plugin) string { return "plugin/" + p.Name },
		Row: func(p plugins.Plugin) []string {
			var pods []string
			for _, d := range p.Devices {
				if d.Pod != "" {
					pods = append(pods, d.Pod)
				}
			}
			counts := []string{strconv.Itoa(len(p.Devices)), strconv.Itoa(p.Healthy()), strconv.Itoa(p.Used())}
			if p.Type == plugins.CSI {
				for _, v := range p.Volumes {
					pods = append(pods, v.Pod)
				}
				counts = []string{"-", "-", strconv.Itoa(len(p.Volumes))}
			}
			row := slices.Concat([]string{p.Name, p.Type, p.Status}, counts,
				[]string{printers.OrNone(strings.Join(slices.Compact(pods), ","))})
			if o.Format.Wide() {
				row = append(row, p.Socket)
			}
			return row
		},
	})
}
