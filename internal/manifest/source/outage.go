package source

import (
	"fmt"
	"strings"
	"time"
)

const (
	// repeatOther and repeatSame are the minimum intervals between two log messages of one outage: if
	// the reason changed, and if it is the same.
	repeatOther, repeatSame = time.Minute, 10 * time.Minute
)

// outage is a time in which a source cannot be used, and what was logged of it.
type outage struct {
	since, logged time.Time
	why           string
	failures      int
}

// due reports whether the outage is to be logged now.
func (o outage) due(now time.Time, why string) bool {
	silent := now.Sub(o.logged)
	return o.logged.IsZero() || silent >= repeatSame || why != o.why && silent >= repeatOther
}

// report logs the first failure, some of those after it, and the end.
func (l *LastGood) report(now time.Time) {
	o := &l.outage
	if l.err == nil {
		if o.failures > 0 {
			l.o.Log.Info("manifests can be read again", l.o.LogKey, l.o.Name,
				"after", now.Sub(o.since).Round(time.Second), "failures", o.failures)
		}
		*o = outage{}
		return
	}
	if o.failures == 0 {
		o.since = now
	}
	o.failures++
	why := Brief(l.err)
	if !o.due(now, why) {
		return
	}
	using := "nothing"
	if good := l.good; good != nil {
		using = fmt.Sprintf("%d pods read at %s", len(good.Pods), good.read.Format(time.RFC3339))
	}
	l.o.Log.Warn("manifests cannot be read", l.o.LogKey, l.o.Name, "err", why,
		"failures", o.failures, "since", o.since.Format(time.RFC3339), "using", using)
	o.logged, o.why = now, why
}

// Brief returns an error's first lines as one, for a log.
func Brief(err error) string {
	const most = 3
	lines := strings.Split(err.Error(), "\n")
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	return strings.Join(lines, "; ")
}
