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

// sourceFlags say where manifests are read, and for which node.
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
	f.StringArrayVar(&s.manifests, "manifests", []string{"/etc/pods"}, "directory or file of manifests; repeatable")
	f.StringVar(&s.nodeName, "node-name", "", "suffix of the pods' names (default: the hostname, in lower case)")
	addNoNodeSuffix(f, &s.noNodeSuffix)
	f.DurationVar(&s.fileCheckFrequency, "file-check-frequency", 20*time.Second, "how often manifests are read again though nothing was notified")
	f.BoolVar(&s.strictPermissions, "strict-permissions", false, "refuse manifests that others than root and podrun's user own or can write, or can replace by way of a directory up to / or a link, instead of warning")
	addPodSecurity(f, &s.podSecurity)
	f.StringVar(&s.url, "manifest-url", "", "http or https URL that serves manifests")
	f.StringArrayVar(&s.urlHeaders, "manifest-url-header", nil, "header 'Name: value' to send with each request to the URL; never shown; repeatable")
	f.StringVar(&s.caFile, "manifest-url-ca-file", "", "authorities to trust for the URL, in PEM (default: the system's)")
	f.StringVar(&s.certFile, "manifest-url-cert-file", "", "client certificate to show to the URL's server, in PEM")
	f.StringVar(&s.keyFile, "manifest-url-key-file", "", "key of the client certificate, in PEM")
	f.DurationVar(&s.httpCheckFrequency, "http-check-frequency", 20*time.Second, "how often the URL is asked, give or take a tenth")
}

// addNoNodeSuffix adds the flag that leaves pods' names alone.
func addNoNodeSuffix(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "no-node-suffix", false, "leave the pods' names as their manifests give them, without the node's name")
}

// addPodSecurity adds the flag that says what pods may ask for.
func addPodSecurity(f *pflag.FlagSet, level *string) {
	f.StringVar(level, "pod-security", "privileged", "what pods may ask for, by Kubernetes' Pod Security Standards: privileged (anything), baseline or restricted")
}

// options puts the flags into what the agent wants.
func (s *sourceFlags) options(c *cobra.Command, o *agent.Options) error {
	if err := positive(map[string]time.Duration{"file-check-frequency": s.fileCheckFrequency, "http-check-frequency": s.httpCheckFrequency}); err != nil {
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

// positive refuses durations, by their flags' names, that are not.
func positive(durations map[string]time.Duration) error {
	for _, name := range slices.Sorted(maps.Keys(durations)) {
		if d := durations[name]; d <= 0 {
			return fmt.Errorf("--%s %s: must be more than 0", name, d)
		}
	}
	return nil
}
