package internal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const monitoring = "../examples/monitoring/"

// promtool runs Prometheus' own tool in the directory of the monitoring example.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	c := exec.Command(path, args...)
	c.Dir = monitoring
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAlerts: the example's configuration and alerts are valid, and each alert has a case in which it fires.
func TestAlerts(t *testing.T) {
	t.Parallel()
	rules, cases := read(t, monitoring+"alerts.yml"), read(t, monitoring+"alerts_test.yml")
	all := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(all) < 10 {
		t.Errorf("%d alerts", len(all))
	}
	for _, m := range all {
		if !strings.Contains(cases, "alertname: "+m[1]+"\n") {
			t.Errorf("%s has no case", m[1])
		}
	}
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "check", "rules", "alerts.yml")
	promtool(t, "test", "rules", "alerts_test.yml")
}

// expressions returns the queries of all panels of the dashboard.
func expressions(t *testing.T) (out []string) {
	t.Helper()
	var board struct {
		Title  string
		Panels []struct {
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, monitoring+"dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H < 1 {
			t.Errorf("panel %q is at %+v", p.Title, p.GridPos)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			out = append(out, target.Expr)
		}
	}
	return out
}

// TestDashboard: Prometheus can parse each query, with Grafana's variables replaced.
func TestDashboard(t *testing.T) {
	t.Parallel()
	all := expressions(t)
	if len(all) < 15 {
		t.Errorf("%d queries", len(all))
	}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for i, expr := range all {
		expr = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$namespace", ".*", "$pod", ".*").Replace(expr)
		if strings.Contains(expr, "$") {
			t.Errorf("a variable that is not known: %s", expr)
		}
		rules += fmt.Sprintf("  - {record: \"r:%d\", expr: %q}\n", i, expr)
	}
	path := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}

// TestMonitoredMetricsExist: alerts and dashboard query what podrun serves.
func TestMonitoredMetricsExist(t *testing.T) {
	t.Parallel()
	known := read(t, "../docs/http.md")
	metric := regexp.MustCompile(`\b(podrun|kubelet|kube|container|machine|prober)_[a-z_]+`)
	found := 0
	for _, text := range append(expressions(t), read(t, monitoring+"alerts.yml")) {
		for _, name := range metric.FindAllString(text, -1) {
			found++
			name = strings.TrimSuffix(name, "_bucket")
			if prefix := regexp.MustCompile(`^container_network_(receive|transmit)_`); prefix.MatchString(name) {
				name = prefix.ReplaceAllString(name, "") // documented by prefix and rest
			}
			name = regexp.MustCompile(`^kube_pod_container_status_(ready|running|waiting|terminated)$`).ReplaceAllString(name, "…_$1")
			if !strings.Contains(known, name) {
				t.Errorf("docs/http.md has no %s", name)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d metrics", found)
	}
}
