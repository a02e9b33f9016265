package unpacked

import (
	signals "github.com/moby/sys/signal"
	"golang.org/x/sys/unix"
)

// SignalName returns the name of a signal, which images give by number or name, as Kubernetes
// spells it, such as SIGTERM or SIGRTMIN+3. It returns "" for what is no signal: as in Docker, a container of such an
// image is stopped as one of an image without a stop signal.
func SignalName(s string) string {
	number, err := signals.ParseSignal(s)
	if err != nil {
		return ""
	}
	if name := unix.SignalName(number); name != "" {
		return name
	}
	for name, n := range signals.SignalMap { // each real-time signal has one name in it
		if n == number {
			return "SIG" + name
		}
	}
	return ""
}
