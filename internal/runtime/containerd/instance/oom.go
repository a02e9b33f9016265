package instance

import (
	"bytes"
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"golang.org/x/sys/unix"
)

// OOMKilled reports whether the kernel killed a process in the container's cgroup because it ran
// out of memory. known is false if the cgroup does not exist any more: systemd removes a scope as soon
// as its last process has ended. KernelLogOOM may know then.
func OOMKilled(c containers.Container) (killed, known bool) {
	texts := filesIn(CgroupOf(c), "memory.oom_control", "memory.events") // v1 and v2
	return slices.ContainsFunc(texts, oomKills), len(texts) > 0
}

// oomKills reports whether the text of a cgroup file counts any OOM kills.
func oomKills(text string) bool {
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(count) != "0"
		}
	}
	return false
}

// KernelLogOOM reports whether the kernel's log says that a process in the container's cgroup was killed
// because memory ran out. The log has the cgroup of each such process, but not of more than ten within
// five seconds, and it is overwritten after some time.
func KernelLogOOM(c containers.Container) bool {
	group := CgroupOf(c)
	if group == "" {
		return false
	}
	log, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // trusted: the kernel's
	if err != nil {
		return false
	}
	defer unix.Close(log)
	record := make([]byte, 2*os.Getpagesize())
	for { // each read returns one record, in which what is not printable is written as \xNN
		switch n, err := unix.Read(log, record); {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // EPIPE: some records were overwritten
		case err != nil || n == 0: // EAGAIN: there are no more
			return false
		case killedIn(record[:n], group):
			return true
		}
	}
}

// killedIn reports whether a record of /dev/kmsg says that the OOM killer chose a process in the cgroup or below it. A
// record that a process wrote does not count: it has another facility than the kernel's, which is 0. See the kernel's
// Documentation/ABI/testing/dev-kmsg.
func killedIn(record []byte, group string) bool {
	header, text, _ := bytes.Cut(record, []byte(";"))
	priority, _, _ := bytes.Cut(header, []byte(","))
	if facilityAndLevel, err := strconv.Atoi(string(priority)); err != nil || facilityAndLevel>>3 != 0 {
		return false
	}
	fields, is := strings.CutPrefix(string(text), "oom-kill:")
	return is && chosenIn(fields, group)
}

// chosenIn reports whether the fields of a record name the cgroup, or one below it, as that of the chosen process.
// Others can name their cgroups so that their paths seem to have further fields. But no name has a slash, so the first
// field that has a path is the kernel's, and that path begins with what is not of others' choice. It is the one of the
// cgroup whose limit was reached, which is the process's own or one above; there is none if it was the machine's.
func chosenIn(fields, group string) bool {
	head, at, _ := strings.Cut(fields, "_memcg=/")
	at = "/" + at
	if strings.HasSuffix(head, ",oom") {
		if strings.HasPrefix(at, group+"/") {
			return true
		}
		above, is := group, false
		for !is && len(above) > 1 {
			at, is = strings.CutPrefix(at, above+",task_memcg=")
			above = path.Dir(above)
		}
		if !is {
			return false
		}
	}
	rest, is := strings.CutPrefix(at, group)
	return is && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, ",task="))
}
