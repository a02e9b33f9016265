package top

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/sys"
)

// ShowNode measures the whole machine and prints a table like that of kubectl top node, of which names may only be the
// machine's node name. Memory is the working set; the percentages are those of all processors and of all memory.
func ShowNode(ctx context.Context, to cli.Streams, dirs layout.Dirs, names []string, o Options) error {
	name, err := nodeName(dirs)
	if err != nil {
		return err
	}
	for _, other := range names {
		if other != name {
			return fmt.Errorf("no node %q here: this one is %q", other, name)
		}
	}
	before, err := sys.ReadUsage()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := sys.Sleep(ctx, o.Interval); err != nil {
		return err
	}
	after, err := sys.ReadUsage()
	if err != nil {
		return err
	}
	used := float64(after.CPU-before.CPU) / float64(time.Since(start)) * 1000
	return printers.Rows(to.Out, rowsOf(name, used, after, o.NoHeaders)...)
}

// rowsOf returns the table; used is in thousandths of a processor.
func rowsOf(name string, used float64, u sys.Usage, noHeaders bool) (rows [][]string) {
	if !noHeaders {
		rows = append(rows, []string{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"})
	}
	percent := func(part, whole float64) string { return strconv.Itoa(int(part/max(whole, 1)*100)) + "%" }
	return append(rows, []string{
		name,
		cores(int64(math.Ceil(used))),
		percent(used, float64(u.Processors)*1000),
		memory(u.WorkingSet),
		percent(float64(u.WorkingSet), float64(u.Total)),
	})
}

// nodeName returns the name of the node: that of serve, or the hostname in lower case.
func nodeName(dirs layout.Dirs) (string, error) {
	settings, err := sources.ReadSettings(dirs)
	if err != nil {
		return "", err
	}
	if given := settings["node-name"]; len(given) > 0 && given[0] != "" {
		return given[0], nil
	}
	host, err := os.Hostname()
	return strings.ToLower(host), err
}
