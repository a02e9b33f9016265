package flags

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/support"
)

// Sources are the flags for the sources of manifests and the name of the node.
type Sources struct {
	manifests                 []string
	loading                   Loading
	fileCheckFrequency        time.Duration
	url                       string
	urlHeaders                []string
	caFile, certFile, keyFile string
	httpCheckFrequency        time.Duration
}

// Add adds the flags to f.
func (s *Sources) Add(f *pflag.FlagSet) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "filename" { // as kubectl's
			name = "manifests"
		}
		return pflag.NormalizedName(name)
	})
	s.add(f, "f")
}

// AddWithout adds the flags without -f and --filename, which stand for --manifests elsewhere.
func (s *Sources) AddWithout(f *pflag.FlagSet) { s.add(f, "") }

func (s *Sources) add(f *pflag.FlagSet, shorthand string) {
	f.StringArrayVarP(&s.manifests, "manifests", shorthand, []string{"/etc/pods"},
		"directory or file with manifests, or exec:COMMAND for those that a command prints; repeatable")
	s.loading.Add(f)
	f.DurationVar(&s.fileCheckFrequency, "file-check-frequency", 20*time.Second,
		"how often manifests are read again if no change is notified")
	s.loading.addPermissions(f)
	f.StringVar(&s.url, "manifest-url", "", "http or https URL that serves manifests")
	f.StringArrayVar(&s.urlHeaders, "manifest-url-header", nil,
		"HTTP header 'Name: value' for requests to the URL; never printed; repeatable")
	f.StringVar(&s.caFile, "manifest-url-ca-file", "",
		"CA certificates to trust for the URL, in PEM format (default: the system's)")
	f.StringVar(&s.certFile, "manifest-url-cert-file", "", "client certificate for the URL, in PEM format")
	f.StringVar(&s.keyFile, "manifest-url-key-file", "", "private key of the client certificate, in PEM format")
	f.DurationVar(&s.httpCheckFrequency, "http-check-frequency", 20*time.Second,
		"how often the URL is requested, plus or minus a tenth")
	FromEnvironment(f)
}

// AddFiles adds the files that the arguments of a command name to --manifests. It is called before flags are set from
// the environment, which they replace.
func AddFiles(f *pflag.FlagSet, files []string) error {
	for _, file := range files {
		if err := f.Set("manifests", file); err != nil {
			return err
		}
	}
	return nil
}

// Loading are those of the flags in Sources that decide what a manifest means and whether it can be
// used, wherever it comes from.
type Loading struct {
	nodeName     string
	noNodeSuffix bool
	podSecurity  string
	rules        support.Rules

	strictPermissions bool
	// inlineDrivers are the CSI drivers that podSecurity lets pods use.
	inlineDrivers []string
	// Files are manifests beside those that the arguments name, with AddWithFiles.
	Files []string
}

// Add adds the flags to f.
func (l *Loading) Add(f *pflag.FlagSet) {
	f.StringVar(&l.nodeName, "node-name", "", "suffix of pod names (default: the hostname, in lower case)")
	f.BoolVar(&l.noNodeSuffix, "no-node-suffix", false, "do not append the node name to the names of pods")
	f.StringVar(&l.podSecurity, "pod-security", "privileged",
		"Kubernetes Pod Security Standard that pods must meet: privileged (no restrictions), baseline or restricted")
	f.StringSliceVar(&l.inlineDrivers, "inline-csi-drivers", nil,
		"CSI `drivers` that pods may have inline volumes of although --pod-security is baseline or restricted")
	f.BoolVar(&l.rules.StrictFields, "strict-fields", false,
		"refuse fields that podrun ignores, such as those that only a scheduler acts on, instead of warning")
	f.BoolVar(&l.rules.StrictKinds, "strict-kinds", false,
		"refuse objects of kinds that podrun reads and does not need, such as Services, instead of warning")
	f.BoolVar(&l.rules.IgnoreNodeName, "ignore-node-name", false,
		"run pods whose spec.nodeName is another node's, with a warning, instead of refusing them")
	FromEnvironment(f)
}

// addPermissions adds the flag for manifests that are files.
func (l *Loading) addPermissions(f *pflag.FlagSet) {
	f.BoolVar(&l.strictPermissions, strictPermissions, false,
		"refuse manifests, instead of warning, if a user other than root and podrun's user owns or can write\n"+
			"them, or can replace them through a directory up to / or through a link")
}

// AddToValidate is AddWithFiles for a command that says which manifests serve would use.
func (l *Loading) AddToValidate(f *pflag.FlagSet) {
	l.addPermissions(f)
	l.AddWithFiles(f)
}

// AddWithFiles is Add for a command whose arguments are manifests; the flag for files is kubectl's.
func (l *Loading) AddWithFiles(f *pflag.FlagSet) {
	l.Add(f)
	f.StringArrayVarP(&l.Files, "filename", "f", nil, "file, directory or - for standard input, like an argument; repeatable")
}

// Options checks the flags and returns what they mean.
func (l *Loading) Options() (LoadingOptions, error) {
	node, err := nodeName(l.nodeName)
	if err != nil {
		return LoadingOptions{}, err
	}
	policy, err := podsecurity.New(l.podSecurity, l.inlineDrivers...)
	if err != nil {
		return LoadingOptions{}, fmt.Errorf("--pod-security %w", err)
	}
	return LoadingOptions{NodeName: node, NoSuffix: l.noNodeSuffix, Policy: policy, Rules: l.rules,
		StrictPermissions: l.strictPermissions}, nil
}

// LoadingOptions are how manifests are loaded.
type LoadingOptions struct {
	NodeName string
	NoSuffix bool
	Policy   *podsecurity.Policy
	Rules    support.Rules
	// StrictPermissions refuses files that other users could change.
	StrictPermissions bool
}

// Options checks the flags and sets the node name and the sources in the options of the agent.
func (s *Sources) Options(f *pflag.FlagSet, o *agent.Options) error {
	if err := positive(map[string]time.Duration{
		"file-check-frequency": s.fileCheckFrequency,
		"http-check-frequency": s.httpCheckFrequency,
	}); err != nil {
		return err
	}
	if s.url == "" && (len(s.urlHeaders) > 0 || s.caFile+s.certFile+s.keyFile != "") {
		return errors.New("--manifest-url-…: of use with --manifest-url only")
	}
	if slices.Contains(s.manifests, "") {
		return errors.New(`--manifests "": must be the path of a directory or file, exec:COMMAND, or - for standard input`)
	}
	for _, path := range s.manifests {
		if strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://") {
			return fmt.Errorf("--manifests %s: is a URL: give it with --manifest-url", path)
		}
	}
	loading, err := s.loading.Options()
	if err != nil {
		return err
	}
	o.NodeName, o.Settings = loading.NodeName, s.settings(f, loading.NodeName)
	o.Sources = sources.Options{
		Manifests: s.manifests, Default: !f.Changed("manifests"), FileCheckFrequency: s.fileCheckFrequency,
		StrictPermissions: loading.StrictPermissions, Policy: loading.Policy, NoSuffix: loading.NoSuffix,
		Rules: loading.Rules,
		URL:   s.url, URLHeaders: s.urlHeaders, CAFile: s.caFile, CertFile: s.certFile, KeyFile: s.keyFile,
		HTTPCheckFrequency: s.httpCheckFrequency,
	}
	return nil
}

// nodeName returns the name of the node: the given one or the hostname, in lower case.
func nodeName(given string) (string, error) {
	name := given
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("--node-name: reading the hostname: %w", err)
		}
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "", fmt.Errorf("--node-name %q: %s", name, rule(errs[0]))
	}
	return name, nil
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
