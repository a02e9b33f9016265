package cmd

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
)

// registryFlags say how images are pulled.
type registryFlags struct{ config, hostsDir string }

func (r *registryFlags) add(f *pflag.FlagSet) {
	f.StringVar(&r.config, "registry-config", "", "docker config.json with credentials of registries, credential helpers too (default: docker's own, if it is there)")
	f.StringVar(&r.hostsDir, "registry-hosts-dir", "/etc/containerd/certs.d", "directory of the registries' mirrors and certificates, as containerd has it")
}

// options fails for what was named and is not there: credentials and mirrors that do not count would be noticed late. The
// directory of mirrors by default need not be there.
func (r *registryFlags) options(f *pflag.FlagSet, o *agent.ConnectOptions) error {
	for name, path := range map[string]string{"registry-config": r.config, "registry-hosts-dir": r.hostsDir} {
		if !f.Changed(name) || path == "" {
			continue
		}
		info, err := os.Stat(path)
		switch wantDir := name == "registry-hosts-dir"; {
		case err != nil:
			return fmt.Errorf("--%s: %w", name, err)
		case wantDir && !info.IsDir():
			return fmt.Errorf("--%s %s: is no directory", name, path)
		case !wantDir && info.IsDir():
			return fmt.Errorf("--%s %s: is a directory", name, path)
		}
	}
	o.RegistryConfig, o.RegistryHostsDir = r.config, r.hostsDir
	return nil
}
