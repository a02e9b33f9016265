package cmd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/manifest/validate"
)

// sourceFlags are the flags for the sources of manifests and the name of the node.
type sourceFlags struct {
	manifests                 []string
	nodeName                  string
	noNodeSuffix              bool
	fileCheckFrequency        time.Duration
	strictPermissions         bool
	podSecurity               string
	url                       string
	urlHeaders                []string
	caFile, certFile, keyFile string
	httpCheckFrequency        time.Duration
}

func (s *sourceFlags) add(f *pflag.FlagSet) {
	f.StringArrayVar(&s.manifests, "manifests", []string{"/etc/pods"}, "directory or file with manifests, or exec:COMMAND for those that a command prints; repeatable")
	f.StringVar(&s.nodeName, "node-name", "", "suffix of pod names (default: the hostname, in lower case)")
	addNoNodeSuffix(f, &s.noNodeSuffix)
	f.DurationVar(&s.fileCheckFrequency, "file-check-frequency", 20*time.Second,
		"how often manifests are read again if no change is notified")
	f.BoolVar(&s.strictPermissions, "strict-permissions", false,
		"refuse manifests, instead of warning, if a user other than root and podrun's user owns or can write\n"+
			"them, or can replace them through a directory up to / or through a link")
	addPodSecurity(f, &s.podSecurity)
	f.StringVar(&s.url, "manifest-url", "", "http or https URL that serves manifests")
	f.StringArrayVar(&s.urlHeaders, "manifest-url-header", nil,
		"HTTP header 'Name: value' for requests to the URL; never printed; repeatable")
	f.StringVar(&s.caFile, "manifest-url-ca-file", "",
		"CA certificates to trust for the URL, in PEM format (default: the system's)")
	f.StringVar(&s.certFile, "manifest-url-cert-file", "", "client certificate for the URL, in PEM format")
	f.StringVar(&s.keyFile, "manifest-url-key-file", "", "private key of the client certificate, in PEM format")
	f.DurationVar(&s.httpCheckFrequency, "http-check-frequency", 20*time.Second,
		"how often the URL is requested, plus or minus a tenth")
}

// addNoNodeSuffix adds the flag that omits the node name from the names of pods.
func addNoNodeSuffix(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "no-node-suffix", false, "do not append the node name to the names of pods")
}

// addPodSecurity adds the flag for the Pod Security Standard that pods must meet.
func addPodSecurity(f *pflag.FlagSet, level *string) {
	f.StringVar(level, "pod-security", "privileged",
		"Kubernetes Pod Security Standard that pods must meet: privileged (no restrictions), baseline or restricted")
}

// options checks the flags and sets the node name and the sources in the options of the agent.
func (s *sourceFlags) options(c *cobra.Command, o *agent.Options) error {
	if err := positive(map[string]time.Duration{
		"file-check-frequency": s.fileCheckFrequency,
		"http-check-frequency": s.httpCheckFrequency,
	}); err != nil {
		return err
	}
	if s.url == "" && (len(s.urlHeaders) > 0 || s.caFile+s.certFile+s.keyFile != "") {
		return errors.New("--manifest-url-…: of use with --manifest-url only")
	}
	node, err := nodeName(s.nodeName)
	if err != nil {
		return err
	}
	policy, err := validate.NewPolicy(s.podSecurity)
	if err != nil {
		return fmt.Errorf("--pod-security %w", err)
	}
	o.NodeName = node
	o.Sources = agent.SourceOptions{
		Manifests: s.manifests, Default: !c.Flags().Changed("manifests"), FileCheckFrequency: s.fileCheckFrequency,
		StrictPermissions: s.strictPermissions, Policy: policy, NoSuffix: s.noNodeSuffix,
		URL: s.url, URLHeaders: s.urlHeaders, CAFile: s.caFile, CertFile: s.certFile, KeyFile: s.keyFile,
		HTTPCheckFrequency: s.httpCheckFrequency,
	}
	return nil
}

// positive returns an error for the first duration, by flag name, that is not greater than 0.
func positive(durations map[string]time.Duration) error {
	for _, name := range slices.Sorted(maps.Keys(durations)) {
		if d := durations[name]; d <= 0 {
			return fmt.Errorf("--%s %s: must be more than 0", name, d)
		}
	}
	return nil
}
