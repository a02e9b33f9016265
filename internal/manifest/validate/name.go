package validate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The limits of dnsConfig, as in Kubernetes.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

// validateNames validates a pod's host names, host aliases and DNS settings.
func validateNames(s *v1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Hostname != "" {
		errs = append(errs, invalid(path.Child("hostname"), s.Hostname, validation.IsDNS1123Label(s.Hostname))...)
	}
	if s.Subdomain != "" {
		errs = append(errs, invalid(path.Child("subdomain"), s.Subdomain, validation.IsDNS1123Label(s.Subdomain))...)
	}
	if s.HostnameOverride != nil {
		errs = append(errs, validateOverride(s, path.Child("hostnameOverride"))...)
	}
	for i, alias := range s.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	return append(errs, validateDNS(s, path)...)
}

func validateOverride(s *v1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	name := *s.HostnameOverride
	if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
		errs = append(errs, field.Forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
	}
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(path, "may not be specified when hostNetwork is true"))
	}
	if len(name) > 64 {
		return append(errs, field.TooLong(path, name, 64))
	}
	return append(errs, invalid(path, name, validation.IsDNS1123Subdomain(name))...)
}

func validateDNS(s *v1.PodSpec, path *field.Path) field.ErrorList {
	errs := supported(s.DNSPolicy, path.Child("dnsPolicy"),
		v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	at, c := path.Child("dnsConfig"), s.DNSConfig
	if s.DNSPolicy == v1.DNSNone && c == nil {
		return append(errs, field.Required(at, "must be given when `dnsPolicy` is None"))
	}
	if c == nil {
		return errs
	}
	if s.DNSPolicy == v1.DNSNone && len(c.Nameservers) == 0 {
		// Only this error, as in Kubernetes: without a name server the rest has no effect.
		return append(errs, field.Required(at.Child("nameservers"),
			"there must be at least one when `dnsPolicy` is None"))
	}
	if n := len(c.Nameservers); n > maxNameservers {
		errs = append(errs, field.Invalid(at.Child("nameservers"), n,
			fmt.Sprintf("must not be more than %d", maxNameservers)))
	}
	for i, server := range c.Nameservers {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Child("nameservers").Index(i), server, true, nil)...)
	}
	if n := len(c.Searches); n > maxSearches {
		errs = append(errs,
			field.Invalid(at.Child("searches"), n, fmt.Sprintf("must not be more than %d", maxSearches)))
	}
	if n := len(strings.Join(c.Searches, " ")); n > maxSearchLength {
		errs = append(errs, field.Invalid(at.Child("searches"), n,
			fmt.Sprintf("must not have more than %d characters in all", maxSearchLength)))
	}
	for i, domain := range c.Searches {
		if domain != "." {
			errs = append(errs, invalid(at.Child("searches").Index(i), domain,
				validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(domain, ".")))...)
		}
	}
	for i, option := range c.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}
