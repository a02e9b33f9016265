package flags

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// ContainerLogs are the flags of podrun logs.
type ContainerLogs struct {
	Namespace, Container, Selector string
	All                            bool
	Follow, Previous, Timestamps   bool
	Prefix                         bool
	Tail                           int
	// Since is zero if all lines are printed, whatever their age.
	Since     time.Time
	since     time.Duration
	sinceTime string
}

// Add adds the flags to f.
func (l *ContainerLogs) Add(f *pflag.FlagSet) {
	f.StringVarP(&l.Namespace, "namespace", "n", "default", "namespace of the pods")
	f.StringVarP(&l.Container, "container", "c", "",
		"container name (default: the pod's default container, else its first)")
	f.StringVarP(&l.Selector, "selector", "l", "",
		"label selector of the pods; prints the last 10 lines of each unless --tail is set")
	f.BoolVar(&l.All, "all-containers", false, "print the logs of all containers of the pod")
	f.BoolVarP(&l.Follow, "follow", "f", false, "follow the log")
	f.BoolVarP(&l.Previous, "previous", "p", false, "print the log of the previous instance of the container")
	f.BoolVar(&l.Prefix, "prefix", false,
		"prefix each line with the pod and the container (default: if there are several logs)")
	f.BoolVar(&l.Timestamps, "timestamps", false, "prefix each line with its timestamp")
	f.IntVar(&l.Tail, "tail", -1, "number of most recent lines to print; -1: all")
	f.StringVar(&l.sinceTime, "since-time", "",
		"print lines since a time in RFC 3339 format, such as 2026-01-02T15:04:05Z")
	f.DurationVar(&l.since, "since", 0, "print lines newer than a duration, such as 5s, 2m or 3h")
}

// Check checks the flags, together with the arguments, and sets what follows from them.
func (l *ContainerLogs) Check(f *pflag.FlagSet, args []string) error {
	switch {
	case l.Tail < -1:
		return fmt.Errorf("--tail %d: must be -1 or more", l.Tail)
	case l.since < 0:
		return fmt.Errorf("--since %s: must not be negative", l.since)
	case l.since > 0 && l.sinceTime != "":
		return errors.New("only one of --since and --since-time may be used")
	case l.Follow && l.Previous:
		return errors.New("only one of --follow and --previous may be used: the previous instance has ended")
	case l.All && l.Container != "":
		return errors.New("only one of --container and --all-containers may be used")
	case l.Selector != "" && len(args) > 0:
		return errors.New("pods are selected by name or by --selector, not by both")
	}
	if err := checkSelector(l.Selector); err != nil {
		return err
	}
	if l.sinceTime != "" {
		var err error
		if l.Since, err = time.Parse(time.RFC3339, l.sinceTime); err != nil {
			return fmt.Errorf("--since-time %q: must be a time such as 2026-01-02T15:04:05Z", l.sinceTime)
		}
	}
	if l.since > 0 {
		l.Since = time.Now().Add(-l.since)
	}
	if l.Tail == -1 && l.Selector != "" && !f.Changed("tail") {
		l.Tail = 10 // the default of kubectl
	}
	return nil
}
