package containerlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
)

// Reader reads the logs of instances, whether their output is converted already or not.
type Reader struct {
	Dirs layout.Dirs
	// Convert makes Read convert the output of an instance that it follows, in case no other process
	// does.
	Convert bool
	// Warn is called if output cannot be converted. Its newest lines may then be missing.
	Warn func(error)
}

// Read delivers the log of an instance as cri.Read does. With o.Follow it returns when the instance
// has ended and all of its output is delivered; o.Stop is not used.
func (r Reader) Read(ctx context.Context, inst pod.Instance, o cri.ReadOptions, out, errOut io.Writer) error {
	if err := catchUp(ctx, r.Dirs, inst); err != nil {
		if ctx.Err() != nil {
			return err
		}
		r.Warn(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if o.Follow {
		stop := make(chan struct{})
		o.Stop = stop
		watching.Go(func() { r.awaitEnd(ctx, inst, stop) })
	}
	return cri.Read(ctx, r.Dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt), o, out, errOut)
}

// followPeriod is how often the instance of a followed log is checked.
const followPeriod = 250 * time.Millisecond

// awaitEnd closes stop when the instance has ended and all of its output is in its log.
func (r Reader) awaitEnd(ctx context.Context, inst pod.Instance, stop chan<- struct{}) {
	ticker := time.NewTicker(followPeriod)
	defer ticker.Stop()
	for {
		// Checked before converting: all output of an ended instance is then in its files. A failure,
		// such as a full disk, is retried; the process that owns the pod reports it.
		ended := ended(rawDirOf(r.Dirs, inst))
		if (ended || r.Convert) && catchUp(ctx, r.Dirs, inst) == nil && ended {
			close(stop)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// catchUp converts once the output of an instance that is not converted yet. What it writes meanwhile is left for
// later: it may write without end, and faster. So is a last line without a newline unless the instance has ended. It
// does not rotate: only the process that keeps the log does.
func catchUp(ctx context.Context, dirs layout.Dirs, inst pod.Instance) error {
	c, err := openConverter(dirs, inst, Rotation{})
	if errors.Is(err, errRemoved) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("catching up log: %w", err)
	}
	defer c.close()
	return catchUpWith(ctx, c)
}

// catchUpWith is catchUp once the converter is open.
func catchUpWith(ctx context.Context, c *converter) error {
	sizes := c.rawSizes()
	enough := func() bool {
		return c.state.raw[cri.Stdout] >= sizes[cri.Stdout] && c.state.raw[cri.Stderr] >= sizes[cri.Stderr]
	}
	// Checked before reading: the file cannot grow any more if it has no writer now.
	if err := drainUntil(ctx, c, ended(c.rawDir), enough); err != nil && !errors.Is(err, errRemoved) {
		return fmt.Errorf("catching up log: %w", err)
	}
	return nil
}

// ended reports whether an instance that was started writes no more output.
func ended(rawDir string) bool {
	return !hasWriter(rawPath(rawDir, cri.Stdout)) && !hasWriter(rawPath(rawDir, cri.Stderr))
}
