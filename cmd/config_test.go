package cmd

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/cli/flags"
)

// TestConfigOfFlags: /configz has the setting of each flag of serve, so that nobody forgets those of a new one.
func TestConfigOfFlags(t *testing.T) {
	a, _, _ := newApp(t, nil)
	var r flags.Run
	var pods flags.ServedPods
	var garbage flags.Garbage
	var listen flags.Listen
	var shutdown flags.Shutdown
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	for _, add := range []func(*pflag.FlagSet){a.Global.Add, r.Add, pods.Add, garbage.Add, listen.Add, shutdown.Add} {
		add(f)
	}
	must(t, f.Parse([]string{
		"--listen-cert-file", "/c", "--listen-key-file", "/k", "--listen-token-file", "/t", "--listen", "127.0.0.1:1", "--manifest-url", "http://h/", "--cluster-dns", "10.0.0.1", "--node-labels", "a=b", "--plugins",
		"--allowed-unsafe-sysctls", "kernel.msgmax", "--snapshotter", "native", "--inline-csi-drivers", "d", "--pod-security", "restricted",
		"--containerd-address", "/c.sock", "--strict-kinds",
	}))
	o := a.agentOptions()
	must(t, r.Options(f, &o))
	must(t, pods.Options(&o))
	must(t, garbage.Options(&o))
	must(t, shutdown.Options(&o))
	o.Listen = listen.ListenOptions
	config := map[string]any{}
	for _, part := range flags.Config(o, f) {
		text, err := json.Marshal(part)
		must(t, err)
		must(t, json.Unmarshal(text, &config)) // adds to what is there
	}
	for name, want := range map[string]any{
		"podSecurity": "restricted", "strictKinds": true, "stopPods": false, "containerdAddress": "/c.sock", "autoUpdateSchedule": "@daily",
	} {
		if config[name] != want {
			t.Errorf("%s: %v, want %v", name, config[name], want)
		}
	}
	leftOut := []string{"help", "manifest-url-header"} // headers are secrets
	named := map[string]string{                        // those of a kubelet, and what is not the flag's name in camel case
		"cluster-dns": "clusterDNS", "disk-pressure-threshold": "diskPressureThresholdPercent",
		"image-gc-high-threshold": "imageGCHighThresholdPercent", "image-gc-low-threshold": "imageGCLowThresholdPercent",
		"image-minimum-gc-age": "imageMinimumGCAge", "image-maximum-gc-age": "imageMaximumGCAge", "inline-csi-drivers": "inlineCSIDrivers",
		"listen": "address", "listen-cert-file": "tlsCertFile", "listen-key-file": "tlsPrivateKeyFile", "log-dir": "podLogsDir",
		"manifest-url": "staticPodURL", "manifest-url-ca-file": "manifestURLCAFile", "manifest-url-cert-file": "manifestURLCertFile",
		"manifest-url-key-file": "manifestURLKeyFile", "max-container-restart-period": "crashLoopBackOff", "pod-max-pids": "podPidsLimit",
	}
	serve, _, err := Tree().Find([]string{"serve"})
	must(t, err)
	flagsOf(serve).VisitAll(func(flag *pflag.Flag) {
		name := named[flag.Name]
		if name == "" {
			name = camelCase(flag.Name)
		}
		if _, shown := config[name]; shown == slices.Contains(leftOut, flag.Name) {
			t.Errorf("--%s: /configz has %s: %v", flag.Name, name, shown)
		}
	})
}

// flagsOf returns the flags of a command and the global ones.
func flagsOf(c *cobra.Command) *pflag.FlagSet {
	c.InitDefaultHelpFlag()
	c.Flags().AddFlagSet(c.InheritedFlags())
	return c.Flags()
}

func camelCase(flag string) string {
	words := strings.Split(flag, "-")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}
