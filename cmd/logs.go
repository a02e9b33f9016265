package cmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/cli/logs"
	"podrun.io/podrun/internal/cli/query"
)

type logsFlags struct {
	namespace, container, selector string
	all                            bool
	follow, previous, timestamps   bool
	prefix                         bool
	tail                           int
	since                          time.Duration
	sinceTime                      string
}

func logsCommand(a *app) *cobra.Command {
	var f logsFlags
	c := &cobra.Command{
		Use:   "logs POD [-c CONTAINER] | logs -l SELECTOR",
		Short: "Print the logs of containers",
		Long: "logs prints the log of a container, its standard error to standard error. It also works while\n" +
			"serve is down. With -f it follows the log across restarts as long as podrun runs the pod, and\n" +
			"exits when the container will not run again. Lines of several containers are prefixed with the pod\n" +
			"and the container.",
		Example: "  podrun logs web\n  podrun logs -f --tail 20 web -c app\n  podrun logs --previous web\n" +
			"  podrun logs -f web --all-containers\n  podrun logs -l app=web --tail 5",
		ValidArgsFunction: a.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c, args); err != nil {
				return usage(c, err)
			}
			if f.tail == -1 && f.selector != "" && !f.follow && !c.Flags().Changed("tail") {
				f.tail = 10 // the default of kubectl
			}
			return runLogs(a, c, f, args)
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	flags.StringVarP(&f.container, "container", "c", "",
		"container name (default: the pod's default container, else its first)")
	flags.StringVarP(&f.selector, "selector", "l", "",
		"label selector of the pods; prints the last 10 lines of each unless --tail is set")
	flags.BoolVar(&f.all, "all-containers", false, "print the logs of all containers of the pod")
	flags.BoolVarP(&f.follow, "follow", "f", false, "follow the log")
	flags.BoolVarP(&f.previous, "previous", "p", false, "print the log of the previous instance of the container")
	flags.BoolVar(&f.prefix, "prefix", false,
		"prefix each line with the pod and the container (default: if there are several logs)")
	flags.BoolVar(&f.timestamps, "timestamps", false, "prefix each line with its timestamp")
	flags.IntVar(&f.tail, "tail", -1, "number of most recent lines to print; -1: all")
	flags.StringVar(&f.sinceTime, "since-time", "",
		"print lines since a time in RFC 3339 format, such as 2026-01-02T15:04:05Z")
	flags.DurationVar(&f.since, "since", 0, "print lines newer than a duration, such as 5s, 2m or 3h")
	a.completeFlags(c)
	return c
}

func (f logsFlags) check(c *cobra.Command, args []string) error {
	if _, err := time.Parse(time.RFC3339, f.sinceTime); f.sinceTime != "" && err != nil {
		return fmt.Errorf("--since-time %q: must be a time such as 2026-01-02T15:04:05Z", f.sinceTime)
	}
	switch {
	case f.tail < -1:
		return fmt.Errorf("--tail %d: must be -1 or more", f.tail)
	case f.since < 0:
		return fmt.Errorf("--since %s: must not be negative", f.since)
	case f.since > 0 && f.sinceTime != "":
		return errors.New("only one of --since and --since-time may be used")
	case f.follow && f.previous:
		return errors.New("only one of --follow and --previous may be used: the previous instance has ended")
	case f.all && f.container != "":
		return errors.New("only one of --container and --all-containers may be used")
	case f.selector != "" && len(args) > 0:
		return errors.New("pods are selected by name or by --selector, not by both")
	case f.selector != "":
		if _, err := labels.Parse(f.selector); err != nil {
			return fmt.Errorf("--selector %q: %w", f.selector, err)
		}
		return nil
	}
	return argCount(1, 1)(c, args)
}

func runLogs(a *app, c *cobra.Command, f logsFlags, args []string) error {
	pods, err := a.pods().Select(query.Selection{Namespace: f.namespace, Labels: f.selector}, args)
	if err != nil {
		return err
	}
	printer := &logs.Printer{Out: a.Out, ErrOut: a.ErrOut, Pods: a.pods()}
	selected, err := printer.Select(pods, logs.Selection{
		Container: f.container, All: f.all, Previous: f.previous, Several: f.all || f.selector != "",
	})
	if err != nil {
		return err
	}
	o := logs.Options{Follow: f.follow, Timestamps: f.timestamps, Tail: f.tail, Prefix: f.prefix}
	if f.sinceTime != "" {
		o.Since, _ = time.Parse(time.RFC3339, f.sinceTime) // check has parsed it already
	}
	if f.since > 0 {
		o.Since = time.Now().Add(-f.since)
	}
	if !c.Flags().Changed("prefix") {
		o.Prefix = len(selected) > 1
	}
	return printer.Print(c.Context(), selected, o)
}
