package flags

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
)

// TestConfig: the settings have the names and forms of a KubeletConfiguration, and no secret.
func TestConfig(t *testing.T) {
	t.Parallel()
	config := func(args ...string) (string, map[string]any, map[string]any) {
		t.Helper()
		var o agent.Options
		var r Run
		var garbage Garbage
		var halt Shutdown
		var listen Listen
		f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		r.Add(f)
		garbage.Add(f)
		halt.Add(f)
		listen.Add(f)
		if err := f.Parse(append(args, "--node-name", "n")); err != nil {
			t.Fatal(err)
		}
		if err := r.Options(f, &o); err != nil {
			t.Fatal(err)
		}
		if err := garbage.Options(&o); err != nil {
			t.Fatal(err)
		}
		if err := halt.Options(&o); err != nil {
			t.Fatal(err)
		}
		o.Listen = listen.ListenOptions
		text, err := json.Marshal(Config(o, f))
		if err != nil {
			t.Fatal(err)
		}
		var all struct{ Kubeletconfig, Podrun map[string]any }
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		return string(text), all.Kubeletconfig, all.Podrun
	}
	_, kubelet, podrun := config()
	for name, want := range map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "staticPodPath": "/etc/pods", "fileCheckFrequency": "20s",
		"podPidsLimit": -1.0, "cgroupDriver": "cgroupfs", "enableServer": false, "clusterDomain": "cluster.local", "imageGCHighThresholdPercent": 85.0,
		"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "5m0s"}, "containerLogMaxSize": "10485760", "port": nil, "staticPodURL": nil,
	} {
		if !reflect.DeepEqual(kubelet[name], want) {
			t.Errorf("%s: %v, want %v", name, kubelet[name], want)
		}
	}
	if podrun["nodeName"] != "n" || podrun["relistPeriod"] != "1s" {
		t.Errorf("%v", podrun)
	}
	text, kubelet, podrun := config("--manifest-url", "https://me:s3cret@h/pods?token=s3cret", "--manifest-url-header", "Authorization: Bearer s3cret",
		"--manifests", "exec:/bin/pods --password s3cret", "--listen", "0.0.0.0:10250", "--listen-token-file", "/t", "--listen-cert-file", "/c",
		"--listen-key-file", "/k", "--allowed-unsafe-sysctls", "kernel.msgmax", "--pod-max-pids", "9", "--cluster-dns", "10.0.0.1", "--node-labels", "a=b")
	if strings.Contains(text, "s3cret") {
		t.Errorf("a secret: %s", text)
	}
	for name, want := range map[string]any{
		"staticPodURL": "https://***@h/pods?token=***", "staticPodPath": "exec:/bin/pods", "port": 10250.0, "address": "0.0.0.0", "tlsCertFile": "/c",
		"enableServer": true, "readOnlyPort": nil, "podPidsLimit": 9.0, "clusterDNS": []any{"10.0.0.1"}, "allowedUnsafeSysctls": []any{"kernel.msgmax"},
	} {
		if !reflect.DeepEqual(kubelet[name], want) {
			t.Errorf("%s: %v, want %v", name, kubelet[name], want)
		}
	}
	if !reflect.DeepEqual(podrun["nodeLabels"], map[string]any{"a": "b"}) {
		t.Errorf("%v", podrun)
	}
}
