package stats

import (
	"time"

	"podrun.io/podrun/internal/pod"
)

// Total is what a pod has used in all until now.
type Total struct {
	Pod pod.Key
	UID pod.UID
	// Throttled is how long its containers were not run because of their CPU limits.
	Throttled time.Duration
	// Received and Sent are the bytes of its network, if it has one of its own, as Network says.
	Network        bool
	Received, Sent uint64
	// Disk are the bytes of its containers' writable layers; negative: not known.
	Disk int64
}

// Totals returns what each pod has used in all.
func (g Groups) Totals() (out []Total) {
	at := map[pod.UID]int{}
	for i := range g.All {
		one := &g.All[i]
		uid := one.Pod.UID
		if _, is := at[uid]; !is {
			at[uid] = len(out)
			out = append(out, Total{Pod: pod.KeyOf(one.Pod), UID: uid, Disk: -1})
		}
		t := &out[at[uid]]
		if one.Container == "" {
			t.Network = len(one.Links) > 0
			for _, link := range one.Links {
				t.Received, t.Sent = t.Received+link.RxBytes, t.Sent+link.TxBytes
			}
			continue
		}
		t.Throttled += one.Details.Quota.Waited
		if one.Disk != nil {
			t.Disk = max(t.Disk, 0) + one.Disk.Bytes
		}
	}
	return out
}
