package list

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/status/plugins"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/volume/claims"
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

// volumes lists the persistentVolumeClaims of the selected namespaces and their volumes. What cannot be read does not
// keep the others from being listed.
func (l *Lister) volumes(o Options) error {
	pods, failed := l.Reader.Settled() // without them it is not said what a claim waits for
	all, unread := claims.List(l.Reader.Dirs, func() ([]*v1.Pod, error) { return query.WaitingOf(pods), failed })
	selected := []claims.Claim{}
	for _, claim := range all {
		if o.Selection.AllNamespaces || claim.Namespace == o.Selection.Namespace {
			if claim.Message == "" && claim.Status == claims.Pending {
				claim.Message = waitsFor(claim, pods)
			}
			selected = append(selected, claim)
		}
	}
	header := []string{"NAME", "STATUS", "VOLUME", "STORAGECLASS", "AGE", "PODS"}
	if o.Format.Wide() {
		header = append(header, "CAPACITY", "ACCESS MODES", "MODE", "DRIVER", "PATH", "MESSAGE")
	}
	if o.Selection.AllNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if len(selected) == 0 && unread != nil {
		return unread
	}
	err := printed(l, o, selected, "volumes", printers.List[claims.Claim]{
		Header: header,
		Name:   func(claim claims.Claim) string { return "volume/" + claim.Name },
		Row: func(claim claims.Claim) []string {
			row := volumeRow(claim, o.Format.Wide())
			if o.Selection.AllNamespaces {
				row = append([]string{claim.Namespace}, row...)
			}
			return row
		},
	})
	return errors.Join(err, unread)
}

// waitsFor returns what keeps the volume of a claim from a pod that waits for it; "" if no pod does.
func waitsFor(claim claims.Claim, pods []*v1.Pod) string {
	for _, p := range pods {
		why := summary.Unmounted(p)
		if why == "" || p.Namespace != claim.Namespace {
			continue
		}
		for _, v := range p.Spec.Volumes {
			text, is := strings.CutPrefix(why, fmt.Sprintf("volume %q: ", v.Name))
			if of := v.PersistentVolumeClaim; is && of != nil && of.ClaimName == claim.Name {
				return text
			}
		}
	}
	return ""
}

// accessModes are the access modes as kubectl abbreviates them.
var accessModes = map[v1.PersistentVolumeAccessMode]string{
	v1.ReadWriteOnce: "RWO", v1.ReadOnlyMany: "ROX", v1.ReadWriteMany: "RWX", v1.ReadWriteOncePod: "RWOP",
}

// volumeRow returns the cells of a claim but its namespace.
func volumeRow(claim claims.Claim, wide bool) []string {
	volume, age := claim.Volume, "<unknown>"
	if volume == "" && claim.Path != "" {
		volume = "<directory>"
	}
	if !claim.Made.IsZero() {
		age = duration.HumanDuration(time.Since(claim.Made))
	}
	row := []string{
		claim.Name, claim.Status, printers.OrNone(volume), printers.OrNone(claim.StorageClass), age,
		printers.OrNone(strings.Join(claim.Pods, ",")),
	}
	if !wide {
		return row
	}
	var modes []string
	for _, mode := range claim.AccessModes {
		modes = append(modes, cmp.Or(accessModes[mode], string(mode)))
	}
	return append(row, printers.OrNone(claim.Capacity), printers.OrNone(strings.Join(modes, ",")),
		printers.OrNone(string(claim.VolumeMode)), printers.OrNone(claim.Driver),
		printers.OrNone(cmp.Or(claim.Path, claim.Handle)), printers.OrNone(claim.Message))
}

// plugins lists the plugins that serve --plugins knows. What cannot be read does not keep the others from being listed.
func (l *Lister) plugins(o Options) error {
	all, unread := plugins.List(l.Reader.Dirs)
	if len(all) == 0 && unread != nil {
		return unread
	}
	if o.Format.Tabular() {
		l.warnOfAge("plugins", nil)
	}
	refused, err := plugins.Refused(l.Reader.Dirs)
	for _, p := range refused {
		cli.Warnf(l.Streams.ErrOut, "the plugin at %s cannot be used: %s", p.Socket, summary.PlainLine(p.Error))
	}
	unread = errors.Join(unread, err)
	header := []string{"NAME", "TYPE", "STATUS", "DEVICES", "HEALTHY", "USED", "PODS"}
	if o.Format.Wide() {
		header = append(header, "SOCKET")
	}
	err = printed(l, o, all, "plugins", printers.List[plugins.Plugin]{
		Header: header,
		Name:   func(p plugins.Plugin) string { return "plugin/" + p.Name },
		Row: func(p plugins.Plugin) []string {
			counts := []string{strconv.Itoa(len(p.Devices)), strconv.Itoa(p.Healthy()), strconv.Itoa(p.Used())}
			if p.Type == plugins.CSI {
				counts = []string{"-", "-", strconv.Itoa(len(p.Volumes))}
			}
			row := slices.Concat([]string{p.Name, p.Type, p.Status}, counts,
				[]string{printers.OrNone(strings.Join(p.Pods(), ","))})
			if o.Format.Wide() {
				row = append(row, p.Socket)
			}
			return row
		},
	})
	if len(all) == 0 && o.Format.Tabular() && !flags.HasPlugins(l.Reader.Dirs) {
		_, hinted := fmt.Fprintln(l.Streams.ErrOut, "hint: plugins register with podrun serve only if it runs with --plugins")
		err = errors.Join(err, hinted)
	}
	return errors.Join(err, unread)
}
