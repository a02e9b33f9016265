package runcshim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	runc "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys/shortage"
)

const (
	// ttrpcAddress is the environment variable with the address of containerd's ttrpc socket, to
	// which the shim sends events.
	ttrpcAddress = "TTRPC_ADDRESS"
	// gcPercent is how much the heap may grow, in percent, between collections. Go also takes that
	// percentage of 4 MiB for the size of the heap that is collected first, and a shim that has started
	// its containers stays below it: a collector that never ran has no records, which cost more than
	// the garbage of a start.
	gcPercent = 60
	// threads is how many threads run Go code at once, where there are more.
	threads = 2
	// endTimeout bounds the time between a shim's last answer and its end.
	endTimeout = 5 * time.Second
)

// serve serves the task service on the inherited socket until containerd, or a signal, ends the
// shim. It changes global state of the process, so it must be called once.
func serve(ctx context.Context, namespace string) error {
	debug.SetGCPercent(gcPercent)
	if runtime.GOMAXPROCS(0) > threads { // podrun itself is the shim
		runtime.GOMAXPROCS(threads)
	}
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGPIPE, unix.SIGCHLD, unix.SIGUSR1)
	if err := reaper.SetSubreaper(1); err != nil {
		return fmt.Errorf("becoming the parent of orphaned processes: %w", err)
	}
	if err := openLog(); err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	ctx = log.WithLogger(namespaces.WithNamespace(ctx, namespace), log.L.WithField("runtime", name))
	ctx, end := shutdown.WithShutdown(ctx)
	server, err := newServer(ctx, end)
	if err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(listenerFD, "socket"))
	if err != nil {
		return fmt.Errorf("listening on the inherited socket: %w", err)
	}
	defer listener.Close()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ctx, shortage.Accepting(listener)) }()
	if err := handle(ctx, signals, failed); err != nil {
		return err
	}
	end.Shutdown()
	select {
	case <-end.Done():
		return nil
	case <-time.After(endTimeout):
		return errors.New("the shim did not end in time")
	}
}

// newServer returns a server with the task service. end is what ends the shim.
func newServer(ctx context.Context, end shutdown.Service) (*ttrpc.Server, error) {
	publisher, err := shim.NewPublisher(os.Getenv(ttrpcAddress))
	if err != nil {
		return nil, fmt.Errorf("connecting to containerd for events: %w", err)
	}
	service, err := runc.NewTaskService(ctx, publisher, end)
	if err != nil {
		return nil, fmt.Errorf("creating the task service: %w", err)
	}
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser()))
	if err != nil {
		return nil, err
	}
	task.RegisterTTRPCTaskService(server, service)
	return server, nil
}

// handle handles signals until one of them or ctx ends the shim, or the server fails.
func handle(ctx context.Context, signals <-chan os.Signal, failed <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err == nil || ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("serving: %w", err)
		case s := <-signals:
			switch s {
			case unix.SIGCHLD:
				if err := reaper.Reap(); err != nil {
					log.G(ctx).WithError(err).Error("reaping failed")
				}
			case unix.SIGPIPE: // containerd is gone; the shim goes on without it
			case unix.SIGUSR1:
				logStacks(ctx)
			default:
				return nil
			}
		}
	}
}

// openLog makes the file or FIFO "log" in the working directory, which containerd reads, the
// process's standard error.
func openLog() error {
	f, err := os.OpenFile("log", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Dup3(int(f.Fd()), int(os.Stderr.Fd()), 0); err != nil {
		return err
	}
	return log.SetFormat(log.TextFormat)
}

// logStacks writes the stacks of all goroutines to the log.
func logStacks(ctx context.Context) {
	stacks := make([]byte, 1<<20)
	log.G(ctx).Infof("goroutines:\n%s", stacks[:runtime.Stack(stacks, true)])
}
