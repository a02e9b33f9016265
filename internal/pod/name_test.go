package pod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 62) + "-b"
	for name, c := range map[string]struct {
		spec                     v1.PodSpec
		pod                      string
		host, domain, kernel, no string
	}{
		"its own":               {v1.PodSpec{}, "web-n", "web-n", "", "web-n", ""},
		"cut":                   {v1.PodSpec{}, long, strings.Repeat("a", 62), "", strings.Repeat("a", 62), ""},
		"hostname":              {v1.PodSpec{Hostname: "h"}, "web-n", "h", "", "h", ""},
		"subdomain":             {v1.PodSpec{Hostname: "h", Subdomain: "s"}, "web-n", "h", "s.shop.svc.cluster.local", "h", ""},
		"full name":             {v1.PodSpec{Hostname: "h", Subdomain: "s", SetHostnameAsFQDN: new(true)}, "web-n", "h", "s.shop.svc.cluster.local", "h.s.shop.svc.cluster.local", ""},
		"full without a domain": {v1.PodSpec{SetHostnameAsFQDN: new(true)}, "web-n", "web-n", "", "web-n", ""},
		"full, but too long":    {v1.PodSpec{Hostname: long[:50], Subdomain: "s", SetHostnameAsFQDN: new(true)}, "web-n", long[:50], "s.shop.svc.cluster.local", "", "75 characters"},
		"the machine's name":    {v1.PodSpec{Hostname: long[:50], Subdomain: "s", SetHostnameAsFQDN: new(true), HostNetwork: true}, "web-n", long[:50], "s.shop.svc.cluster.local", long[:50], ""},
		"override":              {v1.PodSpec{Hostname: "h", Subdomain: "s", HostnameOverride: new("o.example")}, "web-n", "o.example", "", "o.example", ""},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: c.pod}, Spec: c.spec}
		kernel, err := KernelName(p, "cluster.local")
		if Hostname(p) != c.host || Domain(p, "cluster.local") != c.domain || kernel != c.kernel {
			t.Errorf("%s: %q, %q, %q", name, Hostname(p), Domain(p, "cluster.local"), kernel)
		}
		if (err != nil) != (c.no != "") || err != nil && !strings.Contains(err.Error(), c.no) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
