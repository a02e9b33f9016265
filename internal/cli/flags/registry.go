package flags

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/sys/fileerror"
)

// Registry are the flags for pulling images.
type Registry struct{ config, hostsDir string }

// Add adds the flags to f.
func (r *Registry) Add(f *pflag.FlagSet) {
	f.StringVar(&r.config, "registry-config", "",
		"docker config.json with registry credentials and credential helpers (default: docker's own, if it exists)")
	f.StringVar(&r.hostsDir, "registry-hosts-dir", "/etc/containerd/certs.d",
		"directory of registry mirrors and certificates, in containerd's format")
	FromEnvironment(f)
}

// Options sets the registry options of o. It fails if a path that the user gave does not exist,
// has the wrong type or cannot be read, because missing credentials or mirrors would be noticed only later. The
// default directory of mirrors need not exist.
func (r *Registry) Options(f *pflag.FlagSet, o *connection.Options) error {
	for name, path := range map[string]string{"registry-config": r.config, "registry-hosts-dir": r.hostsDir} {
		if !f.Changed(name) || path == "" {
			continue
		}
		info, err := os.Stat(path)
		switch wantDir := name == "registry-hosts-dir"; {
		case err != nil:
			return fmt.Errorf("--%s %s: %w", name, path, fileerror.Cause(err))
		case wantDir && !info.IsDir():
			return fmt.Errorf("--%s %s: is no directory", name, path)
		case !wantDir:
			if err := connection.CheckCredentials(path); err != nil {
				return fmt.Errorf("--%s %w", name, err)
			}
		}
	}
	o.RegistryConfig, o.RegistryHostsDir = r.config, r.hostsDir
	return nil
}
