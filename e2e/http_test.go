package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// desk is a node's HTTP, as another machine reaches it.
type desk struct {
	t                   *testing.T
	address, token      string
	certFile, tokenFile string
	client              *http.Client
	listenFlags         []string
}

// newDesk chooses an address and makes what other machines need for it.
func (n *node) newDesk() *desk {
	t := n.t
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddress(t))
	must(t, err)
	own := newIdentity(t, n.path("tls"))
	d := &desk{t: t, address: "127.0.0.1:" + port, token: "s3cret", certFile: own.certFile, tokenFile: n.path("token")}
	must(t, os.WriteFile(d.tokenFile, []byte(d.token+"\n"), 0o600))
	text, err := os.ReadFile(own.certFile)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	d.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(d.client.CloseIdleConnections)
	d.listenFlags = []string{"--listen=0.0.0.0:" + port, "--listen-cert-file=" + own.certFile, "--listen-key-file=" + own.keyFile, "--listen-token-file=" + d.tokenFile}
	return d
}

// open asks for a path and returns the answer as it comes.
func (d *desk) open(path string) *http.Response {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	d.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+d.address+path, nil)
	must(d.t, err)
	r.Header.Set("Authorization", "Bearer "+d.token)
	answer, err := d.client.Do(r)
	must(d.t, err)
	d.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// get returns the whole answer, which must be 200.
func (d *desk) get(path string) string {
	d.t.Helper()
	answer := d.open(path)
	text, err := io.ReadAll(answer.Body)
	must(d.t, err)
	if answer.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %s: %s", path, answer.Status, text)
	}
	return string(text)
}

// TestContainerLogs: a container's log over HTTP, by parts, of the run before, and followed over its end.
func TestContainerLogs(t *testing.T) {
	n := newNode(t)
	d := n.newDesk()
	n.write("a.yaml", manifest("a", "Always", "trap 'echo last; exit 1' TERM; echo first; sleep 0.5; echo second >&2; while :; do sleep 0.1; done"))
	n.serve(d.listenFlags...)
	p := n.ready("a-n")
	const log = "/containerLogs/default/a-n/c"
	n.await("the log", func() error {
		if got := d.get(log); got != "first\nsecond\n" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	if got := d.get(log + "?tailLines=1"); got != "second\n" {
		t.Errorf("tail: %q", got)
	}
	stamp, _, _ := strings.Cut(d.get(log+"?timestamps=true&tailLines=1"), " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
		t.Error(err)
	}
	if got := d.get(log + "?sinceTime=" + url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))); got != "" {
		t.Errorf("since later: %q", got)
	}
	follow := bufio.NewReader(d.open(log + "?follow=true&tailLines=1").Body)
	if line, err := follow.ReadString('\n'); line != "second\n" {
		t.Errorf("followed: %q, %v", line, err)
	}
	must(t, syscall.Kill(n.mainPID(p, "c"), syscall.SIGTERM))
	if rest, err := io.ReadAll(follow); string(rest) != "last\n" || err != nil {
		t.Errorf("followed to the end: %q, %v", rest, err)
	}
	n.restarted("a-n", 1)
	if got := d.get(log + "?previous=true"); got != "first\nsecond\nlast\n" {
		t.Errorf("previous: %q", got)
	}
	for path, want := range map[string]int{"/containerLogs/default/none/c": 404, "/containerLogs/default/a-n/none": 404, log + "?tailLines=x": 400} {
		if got := d.open(path); got.StatusCode != want {
			t.Errorf("%s: %s", path, got.Status)
		}
	}
	d.token = "wrong"
	if got := d.open("/pods"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("with another token: %s", got.Status)
	}
}

// TestStats: what a pod takes of disks and its network is told when it is asked for, and follows what it does.
func TestStats(t *testing.T) {
	n := newNode(t)
	address := freeAddress(t)
	n.write("a.yaml", inContainer(manifest("a", "Always", "dd if=/dev/zero of=/own bs=1M count=2; dd if=/dev/zero of=/v/f bs=1M count=3; echo logged; sync; sleep 1000 & sleep 1001; :",
		"volumes: [{name: v, emptyDir: {}}]"), "volumeMounts: [{name: v, mountPath: /v}]"))
	n.serve("--listen=" + address)
	n.ready("a-n")
	n.await("what it takes", func() error {
		answer, err := http.Get("http://" + address + "/stats/summary")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		type fs struct{ UsedBytes, CapacityBytes, AvailableBytes, InodesUsed uint64 }
		var s struct {
			Node struct {
				Fs      fs
				Runtime struct{ ImageFs, ContainerFs fs }
				Rlimit  struct{ MaxPID, CurProc int64 }
			}
			Pods []struct {
				Containers []struct{ Rootfs, Logs fs }
				Volume     []struct {
					Name string
					fs
				}
				Storage fs `json:"ephemeral-storage"`
				Network struct {
					Name    string
					RxBytes *uint64
				}
				Process struct {
					Count int `json:"process_count"`
				} `json:"process_stats"`
			}
		}
		text, err := io.ReadAll(answer.Body)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			return err
		}
		about := func(f fs, mebibytes uint64) bool {
			return f.CapacityBytes > 0 && f.UsedBytes>>20 == mebibytes && f.InodesUsed > 0
		}
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 || len(s.Pods[0].Volume) != 1 {
			return fmt.Errorf("%s", text)
		}
		p := s.Pods[0]
		if c := p.Containers[0]; !about(c.Rootfs, 2) || c.Logs.UsedBytes == 0 || !about(p.Volume[0].fs, 3) || !about(p.Storage, 5) ||
			p.Process.Count != 3 || p.Network.Name != "eth0" || p.Network.RxBytes == nil {
			return fmt.Errorf("%s", text)
		}
		if s.Node.Fs.UsedBytes == 0 || s.Node.Runtime.ImageFs.UsedBytes == 0 || s.Node.Runtime.ContainerFs.UsedBytes < 2<<20 || s.Node.Rlimit.CurProc == 0 {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
}

// TestPrometheus: Debian's Prometheus scrapes podrun, over TLS and with its token.
func TestPrometheus(t *testing.T) {
	n := newNode(t)
	d := n.newDesk()
	n.write("a.yaml", inContainer(manifest("a", "Always", "trap 'exit 0' TERM; while :; do sleep 0.02; done"),
		"resources: {limits: {memory: 64Mi, cpu: 500m}}", "readinessProbe: {periodSeconds: 1, timeoutSeconds: 20, exec: {command: [\"true\"]}}"))
	n.serve(d.listenFlags...)
	n.ready("a-n")
	var ran v1.PodList
	must(t, json.Unmarshal([]byte(d.get("/runningpods/")), &ran))
	if len(ran.Items) != 1 || ran.Items[0].Name != "a-n" || len(ran.Items[0].Spec.Containers) != 1 || ran.Items[0].Spec.Containers[0].Name != "c" {
		t.Errorf("/runningpods/: %+v", ran.Items)
	}
	if config := d.get("/configz"); !strings.Contains(config, `"kind":"KubeletConfiguration"`) || strings.Contains(config, d.token) {
		t.Errorf("/configz: %s", config)
	}
	address := freeAddress(t)
	must(t, os.WriteFile(n.path("prometheus.yml"), fmt.Appendf(nil, `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- &podrun
  job_name: podrun
  scheme: https
  authorization: {credentials_file: %s}
  tls_config: {ca_file: %s}
  static_configs: [{targets: [%q]}]
- <<: *podrun
  job_name: resource
  metrics_path: /metrics/resource
- <<: *podrun
  job_name: cadvisor
  metrics_path: /metrics/cadvisor
- <<: *podrun
  job_name: probes
  metrics_path: /metrics/probes
`, d.tokenFile, d.certFile, d.address), 0o600))
	var said bytes.Buffer
	cmd := exec.Command("prometheus", "--config.file="+n.path("prometheus.yml"), "--storage.tsdb.path="+n.path("tsdb"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = &said, &said
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus said: %s", said.String())
		}
	})
	for _, query := range []string{
		`up{job="podrun"} == 1`, `kubelet_running_pods == 1`, `kube_pod_container_status_restarts_total{pod="a-n", container="c"} == 0`,
		`up{job="resource"} == 1`, `rate(container_cpu_usage_seconds_total{job="resource", pod="a-n", container="c"}[10s]) > 0`, `pod_memory_working_set_bytes{pod="a-n"} > 0`,
		// As dashboards for Kubernetes ask cAdvisor.
		`sum by (pod, container) (rate(container_cpu_usage_seconds_total{job="cadvisor", image!="", container!=""}[10s])) > 0`,
		`container_memory_working_set_bytes{job="cadvisor", pod="a-n", container="c", image!="", name!=""} > 0`,
		`container_spec_memory_limit_bytes{pod="a-n", container="c"} == 64 * 1024 * 1024`,
		`sum(increase(container_cpu_cfs_periods_total{pod="a-n", container="c"}[10s])) > 0`,
		`sum by (pod) (container_network_receive_bytes_total{pod="a-n", interface="eth0"}) >= 0`,
		`container_fs_usage_bytes{pod="a-n", container="c"} >= 0`, `container_oom_events_total{pod="a-n", container="c"} == 0`,
		`container_memory_working_set_bytes{id="/"} > 0`, `machine_cpu_cores > 0`, `container_scrape_error == 0`,
		`prober_probe_total{probe_type="Readiness", result="successful", pod="a-n", container="c"} > 1`,
	} {
		n.await(query, func() error {
			answer, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(query))
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			var found struct {
				Status string
				Data   struct{ Result []any }
			}
			if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
				return err
			}
			if len(found.Data.Result) != 1 {
				return fmt.Errorf("%+v", found)
			}
			return nil
		})
	}
}

// TestPressure: how long a container waited for its processor is in /stats/summary and in /metrics/cadvisor on cgroup
// version 2; the machine's pressure is there wherever the kernel has it.
func TestPressure(t *testing.T) {
	n := newNode(t)
	address := freeAddress(t)
	n.write("a.yaml", inContainer(manifest("a", "Always", "while :; do :; done & while :; do :; done"), "resources: {limits: {cpu: 50m}}"))
	n.serve("--listen=" + address)
	n.ready("a-n")
	has := func(file string) bool { _, err := os.ReadFile(file); return err == nil }
	ofGroups, ofMachine := has("/sys/fs/cgroup/init.scope/cpu.pressure"), has("/proc/pressure/cpu")
	n.await("its pressure", func() error {
		var s kubelet.Summary
		text, err := get("http://" + address + "/stats/summary")
		if err != nil {
			return err
		}
		must(t, json.Unmarshal([]byte(text), &s))
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
			return fmt.Errorf("%s", text)
		}
		c := s.Pods[0].Containers[0].CPU.PSI
		if (c != nil) != ofGroups || c != nil && (c.Some.Total < uint64(time.Second) || s.Pods[0].CPU.PSI.Some.Total < c.Some.Total/2) {
			return fmt.Errorf("the container's and the pod's: %s", text)
		}
		if one, all := s.Pods[0].Containers[0], s.Pods[0]; (one.Memory.PSI != nil) != ofGroups || (all.Memory.PSI != nil) != ofGroups ||
			(one.IO != nil) != ofGroups || (all.IO != nil) != ofGroups {
			return fmt.Errorf("memory's and the disk's: %s", text)
		}
		if m := s.Node.CPU.PSI; (m != nil) != ofMachine || m != nil && m.Some.Total == 0 || ofMachine != (s.Node.IO != nil) {
			return fmt.Errorf("the machine's: %s", text)
		}
		text, err = get("http://" + address + "/metrics/cadvisor")
		for _, metric := range []string{"cpu_waiting", "memory_waiting", "io_waiting", "cpu_stalled", "memory_stalled", "io_stalled"} {
			if got := strings.Contains(text, "container_pressure_"+metric+`_seconds_total{container="c",`); got != ofGroups || err != nil {
				return fmt.Errorf("the container's as a metric: %s: %t %w", metric, got, err)
			}
		}
		return nil
	})
}
