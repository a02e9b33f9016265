package pod

import "time"

// forever is as long as any time of a manifest is.
const forever = 100 * 365 * 24 * time.Hour

// Seconds returns a number of seconds of a manifest, at most a hundred years: Kubernetes accepts more than a
// time.Duration can be.
func Seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(forever/time.Second))) * time.Second
}
