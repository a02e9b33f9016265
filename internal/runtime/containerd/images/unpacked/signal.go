package unpacked

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalName returns the name of a signal, which images give by number or name, as Kubernetes
// spells it, such as SIGTERM.
func SignalName(s string) string {
	if n, err := strconv.Atoi(s); err == nil {
		return unix.SignalName(syscall.Signal(n))
	}
	if s = strings.ToUpper(s); s != "" && !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	return s
}
