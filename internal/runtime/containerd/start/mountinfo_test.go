package start

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// real returns a spec, and what /proc/PID/mountinfo had for it.
func real(t *testing.T, name string) (*specs.Spec, []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/mounts", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	spec := &specs.Spec{}
	if err := json.Unmarshal([]byte(lines[0]), spec); err != nil {
		t.Fatal(err)
	}
	return spec, lines[1:]
}

// there are the hidden paths of the machine that the lists are from.
func there(at string) bool {
	return slices.Contains([]string{
		"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/acpi", "/proc/interrupts", "/proc/keys",
		"/proc/timer_list", "/sys/firmware",
	}, at)
}

func judged(t *testing.T, spec *specs.Spec, lines []string, others bool) error {
	t.Helper()
	mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(strings.Join(lines, "\n")+"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return judge(spec, mounts, others, there)
}

// TestMountsOfRealContainers: nothing is refused that runc has done as it should.
func TestMountsOfRealContainers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/mounts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		spec, lines := real(t, name)
		if err := judged(t, spec, lines, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMountsOfUnifiedCgroups: with cgroup v2 one mount takes the place of many.
func TestMountsOfUnifiedCgroups(t *testing.T) {
	t.Parallel()
	spec, lines := real(t, "ordinary")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, " /sys/fs/cgroup") })
	for text, refused := range map[string]bool{
		"900 330 0:29 / /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw":  false,
		"900 330 254:0 /v /sys/fs/cgroup rw,relatime - ext4 /dev/vda rw": true,
	} {
		if err := judged(t, spec, append(slices.Clone(lines), text), false); refused != errors.Is(err, errLedAstray) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestMountsLedAstray: what a change of paths does to a container's mounts is found in their list.
func TestMountsLedAstray(t *testing.T) {
	t.Parallel()
	const proc, dev, pts, sys = "54 53 0:43 / /proc ", "55 53 0:44 / /dev ", "57 55 0:48 / /dev/pts ", "56 53 0:47 / /sys "
	for name, c := range map[string]struct {
		without string // lines that contain it
		instead [2]string
		more    string
		others  bool // refused too if there may be other mounts
		want    string
	}{
		"proc has another name":       {instead: [2]string{" /proc", " /p2"}, others: true, want: "nothing is mounted at /proc"},
		"only proc has":               {instead: [2]string{proc, "54 53 0:43 / /p2 "}, others: true, want: "nothing is mounted at /proc"},
		"proc without what hides it":  {without: " 54 0:", others: true, want: "/proc/bus is not read-only"},
		"proc a second time":          {more: "900 53 0:43 / /p2 rw,relatime - proc proc rw", others: true, want: "is mounted at /p2"},
		"proc is part of it":          {instead: [2]string{proc, "54 53 0:43 /sys /proc "}, others: true, want: "/sys of a file system of type proc"},
		"proc covered":                {more: "900 54 0:99 / /proc rw - tmpfs tmpfs rw", others: true, want: "two mounts are at /proc"},
		"root covered":                {more: "900 53 254:0 /v / rw - ext4 /dev/vda rw", others: true, want: "two mounts are at /"},
		"read-only path writable":     {instead: [2]string{"/sys /proc/sys ro", "/sys /proc/sys rw"}, others: true, want: "/proc/sys is not read-only"},
		"read-only path missing":      {without: " /proc/sys ", others: true, want: "/proc/sys is not read-only"},
		"read-only path in the image": {instead: [2]string{"96 54 0:43 /sys", "96 53 0:43 /sys"}, others: true, want: "/proc/sys is not read-only"},
		"mask missing":                {without: " /proc/keys ", others: true, want: "/proc/keys is not masked"},
		"mask is a link":              {instead: [2]string{"/null /proc/keys rw,nosuid - tmpfs tmpfs", "/keys /proc/keys rw,nosuid - proc proc"}, others: true, want: "/proc/keys is not masked"},
		"mask of sysfs missing":       {without: " /sys/firmware ", others: true, want: "/sys/firmware is not masked"},
		"sysfs elsewhere":             {instead: [2]string{sys, "56 53 0:47 / /sys2 "}, others: true, want: "nothing is mounted at /sys"},
		"console is a file of proc": {
			without: " /dev/console ", more: "125 55 0:43 /sys/fs/lease-break-time /dev/console rw,relatime - proc proc rw",
			others: true, want: "is mounted at /dev/console"},
		"console is a volume's": {
			without: " /dev/console ", more: "125 55 254:0 /v/0 /dev/console rw,relatime - ext4 /dev/vda rw",
			others: true, want: "is mounted at /dev/console"},
		"console is no terminal": {instead: [2]string{"/0 /dev/console", "/ptmx /dev/console"}, others: true, want: "is mounted at /dev/console"},
		"console elsewhere": {
			without: " /dev/console ", more: "125 53 0:43 /sys/fs/lease-break-time /x rw,relatime - proc proc rw",
			others: true, want: "nothing is mounted at /dev/console"},
		"dev is a volume":         {instead: [2]string{dev + "rw,nosuid - tmpfs", "55 53 0:99 /v /dev rw - ext4"}, others: true, want: "ext4 is mounted at /dev"},
		"a volume over dev":       {more: "900 55 0:99 / /dev rw - tmpfs tmpfs rw", others: true, want: "two mounts are at /dev"},
		"pts elsewhere":           {instead: [2]string{pts, "57 53 0:48 / /mnt "}, others: true, want: "nothing is mounted at /dev/pts"},
		"a volume over pts":       {more: "900 57 254:0 /v /dev/pts rw - ext4 /dev/vda rw", others: true, want: "two mounts are at /dev/pts"},
		"a volume's file at null": {more: "900 55 254:0 /v/null /dev/null rw - ext4 /dev/vda rw", want: "where the container has no mount"},
		"a volume below sysfs":    {more: "900 56 254:0 /v /sys/kernel rw - ext4 /dev/vda rw", want: "where the container has no mount"},
	} {
		spec, lines := real(t, "terminal")
		changed := slices.DeleteFunc(lines, func(line string) bool { return c.without != "" && strings.Contains(line, c.without) })
		found := c.without == "" || len(changed) < len(lines)
		if c.instead[0] != "" {
			before := strings.Join(changed, "\n")
			after := strings.ReplaceAll(before, c.instead[0], c.instead[1])
			found = found && before != after
			changed = strings.Split(after, "\n")
		}
		if !found {
			t.Errorf("%s: it changes nothing", name)
		}
		if c.more != "" {
			changed = append(changed, c.more)
		}
		for _, others := range []bool{false, true} {
			err := judged(t, spec, changed, others)
			if !others || c.others {
				if !errors.Is(err, errLedAstray) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, others %v: %v, want %q", name, others, err, c.want)
				}
			} else if err != nil {
				t.Errorf("%s is refused where there are others: %v", name, err)
			}
		}
	}
}

// TestReadOnlyVolumeIsWritable: two volumes have changed places before runc made one read-only.
func TestReadOnlyVolumeIsWritable(t *testing.T) {
	t.Parallel()
	spec, lines := real(t, "ordinary")
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/v/x", Type: "bind", Options: []string{"rbind", "ro"}})
	for options, refused := range map[string]bool{"ro,relatime": false, "rw,relatime": true} {
		err := judged(t, spec, append(slices.Clone(lines), "900 327 254:0 /v /v/x "+options+" - ext4 /dev/vda rw"), false)
		if refused != errors.Is(err, errLedAstray) {
			t.Errorf("%s: %v", options, err)
		}
	}
}
