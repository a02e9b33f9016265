package server

import (
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/server/chart"
	"podrun.io/podrun/internal/server/detail"
	"podrun.io/podrun/internal/server/sparkline"
	"podrun.io/podrun/internal/stats/history"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/timeline"
	"podrun.io/podrun/internal/timeline/day"
)

// ProbeResult is what a container's probe has found since some time.
type ProbeResult struct {
	Container string
	// Type is Startup, Liveness or Readiness; Result is successful, failed or unknown.
	Type, Result string
	Since        time.Time
}

// chartOf returns what a pod's containers did in the last 24 hours.
func (p page) chartOf(of *v1.Pod, now time.Time) chart.Chart {
	if p.o.Timeline == nil {
		return chart.Chart{}
	}
	key := pod.KeyOf(of)
	pulls := p.o.Timeline.Spans(func(s timeline.Span) bool {
		of := pod.Key{Namespace: s.Namespace, Name: s.Pod}
		return s.OfPull() && of == key && now.Sub(s.Begin) < day.Kept
	})
	return chart.Of(p.o.Timeline.Day.Of(key), pulls, now, summary.Plain)
}

// hostOf returns the host by which a page was asked for; "" for the socket, whose clients name any.
func hostOf(r *http.Request) string {
	if overSocket(r) {
		return ""
	}
	return hostName(r)
}

// lineRow is what a pod uses in its last minute, and its line of the last hour.
type lineRow struct {
	Name, Now string
	Line      sparkline.Line
}

// linesOf returns the lines of a pod of which something is known.
func (p page) linesOf(uid string) (out []lineRow) {
	all := p.o.History.Pods(func(of history.Of) bool { return of.UID == uid })
	if len(all) == 0 {
		return nil
	}
	bytes := func(v float64) string { return sparkline.Bytes(uint64(v)) }
	share := func(v float64) string { return fmt.Sprintf("%.1f %% of the time", v/10) }
	for _, one := range []struct {
		name   string
		values []float64
		format func(float64) string
	}{
		{"Throttled", all[0].Throttled, share}, {"Received", all[0].Received, sparkline.Rate},
		{"Sent", all[0].Sent, sparkline.Rate}, {"Writable layers", all[0].Disk, bytes},
	} {
		row := lineRow{Name: one.name, Line: sparkline.Of(one.name, one.values, one.format)}
		for _, v := range one.values {
			if v >= 0 {
				row.Now = one.format(v)
			}
		}
		if row.Now != "" {
			out = append(out, row)
		}
	}
	return out
}

// addMore adds what only the page of one pod shows.
func (p page) addMore(d *podData, of *v1.Pod, r *http.Request, now time.Time) {
	d.Lines = p.linesOf(d.UID)
	d.Chart, d.Written = p.chartOf(of, now), p.manifests.Of(p.o.Node.Desired(), of)
	d.Inside = detail.ContentsOf(of)
	results := p.o.Node.ProbeResults(types.UID(d.UID))
	for i := range d.Of {
		if c := pod.FindContainer(of, d.Of[i].Name); c != nil {
			d.Of[i].Ports = detail.Ports(of, c, hostOf(r))
			d.Of[i].Probes = detail.Probes(c, func(probe string) (result string, since time.Time) {
				for _, r := range results {
					if r.Container == c.Name && r.Type == probe {
						return r.Result, r.Since
					}
				}
				return "", since
			})
		}
	}
}
