package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Details are the usage and the limits of a cgroup, including its descendants. A file that the
// kernel does not have, as without its controller, counts as 0.
type Details struct {
	Usage
	// User and System are the parts of CPU in programs and in the kernel.
	User, System time.Duration
	Quota        Quota
	// Cache is the memory of cached files, MappedFile the part of it that is mapped into processes,
	// Kernel the kernel's own memory and Peak the highest Memory, in bytes.
	Cache, MappedFile, Kernel, Peak int64
	// LimitHits is how often memory reached its limit, and OOMKills how many processes were killed for
	// lack of memory. Version 1 counts kills in the cgroup itself only.
	LimitHits, OOMKills int64
	// Tasks are the processes and threads, and MostTasks is their limit; 0: none.
	Tasks, MostTasks int64
	// Devices has the traffic of block devices.
	Devices []Device
}

// Quota is how much CPU time a cgroup may use, and how often it had to wait for that reason.
type Quota struct {
	// Limit is the CPU time in each period; 0: no limit. Shares is the weight, in terms of version 1.
	Period, Limit time.Duration
	Shares        int64
	// LinearShares is Shares if an older runc, which converts it otherwise, has set the weight of
	// version 2; 0 on version 1.
	LinearShares int64
	// Periods are those in which the cgroup was active, Throttled those of them in which it used up
	// its limit, and Waited for how long it then waited.
	Periods, Throttled int64
	Waited             time.Duration
}

// Device is the traffic of a block device. Number is major:minor.
type Device struct {
	Number                                 string
	BytesRead, BytesWritten, Reads, Writes int64
}

// Details returns the details of the cgroup at path. The error is fs.ErrNotExist if the cgroup does
// not exist.
func (t *Tree) Details(path string) (Details, error) {
	u, err := t.Usage(path)
	if err != nil {
		return Details{}, err
	}
	d := Details{Usage: u}
	if t.unified != "" {
		err = d.readUnified(filepath.Join(t.unified, path))
	} else {
		err = d.readV1(func(controller, file string) string { return filepath.Join(t.mounts[controller], path, file) })
	}
	if err != nil {
		return Details{}, fmt.Errorf("reading cgroup %s: %w", path, err)
	}
	return d, nil
}

// reader reads files until one fails with an error other than fs.ErrNotExist.
type reader struct{ err error }

func (r *reader) failed(err error) bool {
	if err == nil {
		return false
	}
	if !errors.Is(err, fs.ErrNotExist) && r.err == nil {
		r.err = err
	}
	return true
}

// number returns the only number in a file; 0 if it has none, such as "max" or an absent file.
func (r *reader) number(path string) int64 {
	n, err := number(path)
	if errors.Is(err, strconv.ErrSyntax) || r.failed(err) {
		return 0
	}
	return n
}

func (r *reader) keyed(path string) map[string]int64 {
	all, err := keyed(path)
	r.failed(err)
	return all
}

// lines returns the fields of each line of a file.
func (r *reader) lines(path string) (out [][]string) {
	f, err := os.Open(path)
	if r.failed(err) {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		out = append(out, strings.Fields(lines.Text()))
	}
	r.failed(lines.Err())
	return out
}

func (d *Details) readUnified(dir string) error {
	var r reader
	in := func(file string) string { return filepath.Join(dir, file) }
	cpu := r.keyed(in("cpu.stat"))
	d.User, d.System = microseconds(cpu["user_usec"]), microseconds(cpu["system_usec"])
	d.Quota = Quota{
		Periods: cpu["nr_periods"], Throttled: cpu["nr_throttled"], Waited: microseconds(cpu["throttled_usec"]),
	}
	for _, fields := range r.lines(in("cpu.max")) {
		if len(fields) == 2 {
			d.Quota.Limit, d.Quota.Period = microseconds(parse(fields[0])), microseconds(parse(fields[1]))
		}
	}
	if weight := r.number(in("cpu.weight")); weight > 0 {
		d.Quota.Shares = int64(mostShares(uint64(weight)))
		d.Quota.LinearShares = (weight-1)*262_142/9_999 + 2
	}
	memory, events := r.keyed(in("memory.stat")), r.keyed(in("memory.events"))
	d.Cache, d.MappedFile, d.Kernel = memory["file"], memory["file_mapped"], memory["kernel"]
	d.LimitHits, d.OOMKills = events["max"], events["oom_kill"]
	d.Peak = r.number(in("memory.peak"))
	d.Tasks, d.MostTasks = r.number(in("pids.current")), r.number(in("pids.max"))
	for _, fields := range r.lines(in("io.stat")) {
		if len(fields) < 2 {
			continue
		}
		one := d.device(fields[0])
		for _, field := range fields[1:] {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "rbytes":
				one.BytesRead += parse(value)
			case "wbytes":
				one.BytesWritten += parse(value)
			case "rios":
				one.Reads += parse(value)
			case "wios":
				one.Writes += parse(value)
			}
		}
	}
	return r.err
}

// readV1 reads the files of version 1's controllers; at returns the path of one.
func (d *Details) readV1(at func(controller, file string) string) error {
	var r reader
	d.User = time.Duration(r.number(at("cpuacct", "cpuacct.usage_user")))
	d.System = time.Duration(r.number(at("cpuacct", "cpuacct.usage_sys")))
	cpu := r.keyed(at("cpu", "cpu.stat"))
	d.Quota = Quota{
		Periods: cpu["nr_periods"], Throttled: cpu["nr_throttled"], Waited: time.Duration(cpu["throttled_time"]),
		Period: microseconds(r.number(at("cpu", "cpu.cfs_period_us"))),
		Limit:  microseconds(max(r.number(at("cpu", "cpu.cfs_quota_us")), 0)),
		Shares: r.number(at("cpu", "cpu.shares")),
	}
	memory := r.keyed(at("memory", "memory.stat"))
	d.Cache, d.MappedFile = memory["total_cache"], memory["total_mapped_file"]
	d.Kernel = r.number(at("memory", "memory.kmem.usage_in_bytes"))
	d.Peak = r.number(at("memory", "memory.max_usage_in_bytes"))
	d.LimitHits = r.number(at("memory", "memory.failcnt"))
	d.OOMKills = r.keyed(at("memory", "memory.oom_control"))["oom_kill"]
	d.Tasks, d.MostTasks = r.number(at("pids", "pids.current")), r.number(at("pids", "pids.max"))
	for _, fields := range r.lines(at("blkio", "blkio.throttle.io_service_bytes_recursive")) {
		d.add(fields, func(one *Device) (read, written *int64) { return &one.BytesRead, &one.BytesWritten })
	}
	for _, fields := range r.lines(at("blkio", "blkio.throttle.io_serviced_recursive")) {
		d.add(fields, func(one *Device) (read, written *int64) { return &one.Reads, &one.Writes })
	}
	return r.err
}

// add adds a line of blkio, such as "8:0 Read 4096", to the counters of its device.
func (d *Details) add(fields []string, of func(*Device) (read, written *int64)) {
	if len(fields) != 3 {
		return // the total of all devices
	}
	read, written := of(d.device(fields[0]))
	switch fields[1] {
	case "Read":
		*read += parse(fields[2])
	case "Write":
		*written += parse(fields[2])
	}
}

// device returns the entry of a device, which it adds if there is none.
func (d *Details) device(number string) *Device {
	i := slices.IndexFunc(d.Devices, func(one Device) bool { return one.Number == number })
	if i < 0 {
		i = len(d.Devices)
		d.Devices = append(d.Devices, Device{Number: number})
	}
	return &d.Devices[i]
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// parse returns a number; 0 for what is none, such as "max".
func parse(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
