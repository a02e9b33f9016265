package cmd

import (
	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
)

// registryFlags say how images are pulled.
type registryFlags struct{ config, hostsDir string }

func (r *registryFlags) add(f *pflag.FlagSet) {
	f.StringVar(&r.config, "registry-config", "", "docker config.json with credentials of registries, credential helpers too (default: docker's own, if it is there)")
	f.StringVar(&r.hostsDir, "registry-hosts-dir", "/etc/containerd/certs.d", "directory of the registries' mirrors and certificates, as containerd has it")
}

func (r *registryFlags) options(o *agent.ConnectOptions) {
	o.RegistryConfig, o.RegistryHostsDir = r.config, r.hostsDir
}
