package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"podrun.io/podrun/internal/status/plugins"
)

// registrationMetric has the kubelet's name, and its meaning: plugins that came back to a podrun that knew them have
// not registered again.
const registrationMetric = "kubelet_device_plugin_registration_total"

// describePlugins returns the metrics of plugins, by name.
func describePlugins() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	add := func(name, help string, labels ...string) { all[name] = prometheus.NewDesc(name, help, labels, nil) }
	add("podrun_plugin_connected", "1 while podrun is in contact with a plugin, else 0.", "name", "type")
	add("podrun_plugin_devices", "Devices of a device plugin by health.", "resource", "health")
	add("podrun_plugin_devices_allocated", "Devices of a device plugin that pods have.", "resource")
	add("podrun_plugin_volumes", "Volumes of a CSI driver by state.", "driver", "state")
	add(registrationMetric, "How often a device plugin has registered a resource.", "resource_name")
	return all
}

// collectPlugins adds the metrics of plugins.
func collectPlugins(descs map[string]*prometheus.Desc, from Node, out chan<- prometheus.Metric) {
	all, err := from.Plugins()
	if err != nil {
		out <- prometheus.NewInvalidMetric(descs["podrun_plugin_connected"], err) // the others are there nevertheless
	}
	gauge := func(name string, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, float64(value), labels...)
	}
	for _, p := range all {
		connected := 0
		if p.Status == plugins.Connected {
			connected = 1
		}
		gauge("podrun_plugin_connected", connected, p.Name, p.Type)
		if p.Type == plugins.CSI {
			states := map[string]int{}
			for _, v := range p.Volumes {
				states[v.Status]++
			}
			for _, state := range []string{plugins.Publishing, plugins.Published, plugins.Unpublishing} {
				gauge("podrun_plugin_volumes", states[state], p.Name, strings.ToLower(state))
			}
			continue
		}
		gauge("podrun_plugin_devices", p.Healthy(), p.Name, "healthy")
		gauge("podrun_plugin_devices", len(p.Devices)-p.Healthy(), p.Name, "unhealthy")
		gauge("podrun_plugin_devices_allocated", p.Used(), p.Name)
		out <- prometheus.MustNewConstMetric(
			descs[registrationMetric], prometheus.CounterValue, float64(p.Registrations), p.Name)
	}
}
