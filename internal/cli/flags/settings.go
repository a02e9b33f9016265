package flags

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint/layout"
)

// The flags of Sources that serve saves: those that say where manifests are, of which some are paths, and those
// that say what they mean. The headers are secrets: their number alone is saved.
var (
	whereFlags = []string{
		"manifests", "manifest-url", "manifest-url-ca-file", "manifest-url-cert-file", "manifest-url-key-file",
	}
	meaningFlags = []string{
		"node-name", "no-node-suffix", "pod-security", "inline-csi-drivers", "strict-fields", "strict-kinds",
		"ignore-node-name", strictPermissions,
	}
)

const (
	headerFlag  = "manifest-url-header"
	pluginsFlag = "plugins"
	// strictPermissions is about where manifests are, not what they mean: see Served.
	strictPermissions = "strict-permissions"
)

// settings returns the flags that another process needs to read the same manifests, and whether plugins can register.
func (s *Sources) settings(f *pflag.FlagSet, nodeName string) sources.Settings {
	all := sources.Settings{"node-name": {nodeName}}
	for _, name := range append(slices.Clone(whereFlags), meaningFlags...) {
		if !f.Changed(name) || name == "node-name" {
			continue
		}
		values := []string{f.Lookup(name).Value.String()}
		if all, several := f.Lookup(name).Value.(pflag.SliceValue); several {
			values = slices.Clone(all.GetSlice())
		}
		for i, value := range values {
			isPath := name == "manifests" && !strings.HasPrefix(value, "exec:") || strings.HasSuffix(name, "-file")
			if abs, err := filepath.Abs(value); err == nil && isPath {
				values[i] = abs
			}
		}
		all[name] = values
	}
	if f.Changed(pluginsFlag) {
		all[pluginsFlag] = []string{f.Lookup(pluginsFlag).Value.String()}
	}
	for range s.urlHeaders {
		all[headerFlag] = append(all[headerFlag], "")
	}
	return all
}

// AdoptServe sets the flags that the user has not set as the serve has them that runs, or ran last. If the user says
// where manifests are, only the flags that say what they mean are set. It returns an error if what serve has is not
// known in full; the flags can be used nevertheless. The flags are those of Sources, or of Loading alone.
func AdoptServe(f *pflag.FlagSet, dirs layout.Dirs) error {
	settings, err := sources.ReadSettings(dirs)
	if err != nil {
		return err // what runs as root shows to root alone
	}
	return adopt(f, settings)
}

func adopt(f *pflag.FlagSet, from sources.Settings) (unlike error) {
	names := meaningFlags
	if f.Lookup("manifests") != nil && !slices.ContainsFunc(whereFlags, f.Changed) {
		names = append(slices.Clone(meaningFlags), whereFlags...)
		if len(from[headerFlag]) > 0 && !f.Changed(headerFlag) {
			unlike = errors.New("it sends headers to its URL, which are not stored; give --" + headerFlag)
		}
	}
	for _, name := range names {
		elsewhere := name == strictPermissions && f.Lookup("manifests") == nil
		if f.Changed(name) || f.Lookup(name) == nil || elsewhere {
			continue
		}
		for _, value := range from[name] {
			if err := f.Set(name, value); err != nil {
				return err
			}
		}
	}
	return unlike
}

// Served returns what says whether the serve that runs, or ran last, reads a file or directory, and whether it refuses
// there what other users could change. Without one it is that of the default flags.
func Served(dirs layout.Dirs) func(path string) (reads, strict bool) {
	settings, _ := sources.ReadSettings(dirs) // unreadable: as by default
	var s Sources
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.Add(f)
	_ = adopt(f, settings)
	return func(path string) (reads, strict bool) {
		path, err := filepath.Abs(path)
		reads = err == nil && slices.ContainsFunc(s.manifests, func(of string) bool {
			beneath, err := filepath.Rel(of, path)
			return err == nil && filepath.IsLocal(beneath)
		})
		return reads, reads && s.loading.strictPermissions
	}
}

// NoSuffix reports whether the serve that runs, or ran last, does not append the node name to the names of pods.
func NoSuffix(dirs layout.Dirs) bool {
	settings, _ := sources.ReadSettings(dirs) // unreadable: as by default
	return slices.Equal(settings["no-node-suffix"], []string{"true"})
}

// HasPlugins reports whether plugins can register with the serve that runs, or ran last.
func HasPlugins(dirs layout.Dirs) bool {
	settings, err := sources.ReadSettings(dirs)
	return err != nil || slices.Equal(settings[pluginsFlag], []string{"true"}) // unreadable: nobody is sent astray
}

// AsServe returns the options by which the serve that runs, or ran last, reads its manifests. ok is false if none ran,
// or if reading them takes more than files.
func AsServe(o agent.Options) (as agent.Options, ok bool, err error) {
	settings, err := sources.ReadSettings(o.Dirs)
	if settings == nil || err != nil {
		return o, false, err
	}
	if len(settings["manifest-url"]) > 0 || slices.ContainsFunc(settings["manifests"], func(location string) bool {
		return strings.HasPrefix(location, "exec:")
	}) {
		return o, false, nil
	}
	var s Sources
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.Add(f)
	if err = adopt(f, settings); err == nil {
		err = s.Options(f, &o)
	}
	o.Log = slog.New(slog.DiscardHandler) // problems are in the result
	return o, err == nil, err
}
