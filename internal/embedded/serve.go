package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/cmd/containerd/server"
	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/version"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/image/decompress"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/heap"
)

// readyEnv is the environment variable with the file descriptor on which Serve reports to Ensure
// that the daemon is ready.
const readyEnv = "PODRUN_CONTAINERD_READY_FD"

// maxShimSocketDir is the maximum length, in bytes, of the directory of the shims' sockets that
// containerd accepts.
const maxShimSocketDir = 42

// rootPatience is how long a daemon waits for the root directory if the daemon that has it may have
// lost its run directory: that one exits as soon as it detects this and has finished what it is
// doing. It is less than the time that Ensure waits for this daemon.
const rootPatience = startTimeout - 5*time.Second

// lockRoot locks the root directory for a daemon that has locked its run directory.
func lockRoot(ctx context.Context, o Options) (*os.File, error) {
	for end := time.Now().Add(rootPatience); ; {
		root, err := lockDaemon(rootLock(o.Dirs), o.Dirs.Run+"\n")
		if err == nil {
			return root, nil
		}
		if !errors.Is(err, ErrRunning) {
			return nil, err
		}
		// If the run directories have the same path, the other daemon's directory was replaced by
		// ours, and it will exit. A daemon that has just locked the file may not have written its
		// path yet.
		holder, _ := os.ReadFile(rootLock(o.Dirs))
		_, run, _ := strings.Cut(string(holder), "\n")
		if run != "" && run != o.Dirs.Run+"\n" || time.Now().After(end) {
			return nil, fmt.Errorf("%s is in use by a podrun with another run directory, %s: %w",
				o.Dirs.Embedded().Data(), strings.TrimSpace(run), err)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// Serve runs containerd in this process until ctx ends or nothing needs it any more; both are
// success. It changes global state of the process (containerd's log and plugin registry, TMPDIR,
// umask), so it must be called once, in a process of its own that exits afterwards.
func Serve(ctx context.Context, o Options) error {
	ready := readyPipe()
	o, err := o.checked()
	if err != nil {
		return err
	}
	lock, err := lockDaemon(daemonLock(o.Dirs), "")
	if err != nil {
		return err
	}
	defer lock.Close()
	// Open it now, in the same directory as the daemon's lock: a directory that replaces this one
	// later has clients of another daemon.
	users, err := openLock(usersLock(o.Dirs))
	if err != nil {
		return err
	}
	root, err := lockRoot(ctx, o)
	if err != nil {
		return err
	}
	// Until the end of the process: another daemon does not start before.
	if _, err := pin(root); err != nil {
		return err
	}
	// The root directories of images and containers get the mode bits that this umask leaves.
	unix.Umask(0o022)
	captureLog(o.Log)
	if err := installShim(o.Dirs.Embedded().Shim()); err != nil {
		return fmt.Errorf("creating the shim %s: %w", o.Dirs.Embedded().Shim(), err)
	}
	snapshotter, err := chooseSnapshotter(o)
	if err != nil {
		return fmt.Errorf("choosing the snapshotter: %w", err)
	}
	if err := sweepSockets(ctx, o.Dirs); err != nil {
		o.Log.Warn("removing the sockets of ended shims failed", "err", err)
	}
	stop, err := startContainerd(ctx, o, snapshotter)
	if err != nil {
		return fmt.Errorf("starting containerd: %w", err)
	}
	defer stop()
	reportReady(ready)

	var limit sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	limit.Go(func() { limitLog(ctx, logFile(o.Dirs)) })
	limit.Go(func() { heap.Tune(ctx, o.Log) })
	defer limit.Wait()
	defer cancel()
	err = untilIdle(ctx, o, users)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("waiting until nothing needs containerd: %w", err)
	}
	stop()
	unmountLeftovers(o)
	return nil
}

// readyPipe returns the descriptor of the pipe that Ensure passed, or -1. If Serve fails, the
// descriptor stays open until the process ends: by then the error has been printed, and Ensure
// reads the log after the pipe's end.
func readyPipe() int {
	fd, err := strconv.Atoi(os.Getenv(readyEnv))
	os.Unsetenv(readyEnv)
	if err != nil {
		return -1
	}
	unix.CloseOnExec(fd)
	return fd
}

// reportReady writes to the pipe that the daemon is ready. It ignores errors, because the process
// that started the daemon may have ended.
func reportReady(fd int) {
	if fd < 0 {
		return
	}
	_, _ = unix.Write(fd, []byte("ready\n")) // the reader may have ended
	unix.Close(fd)
}

// startContainerd starts the daemon, which answers requests when this returns. stop may be called
// more than once.
func startContainerd(ctx context.Context, o Options, snapshotter string) (stop func(), err error) {
	cfg := config(o, snapshotter)
	if err := server.CreateTopLevelDirectories(cfg); err != nil {
		return nil, err
	}
	if err := mount.SetTempMountLocation(filepath.Join(cfg.Root, "tmpmounts")); err != nil {
		return nil, err
	}
	if _, err := mount.CleanupTempMounts(0); err != nil {
		return nil, fmt.Errorf("unmounting an earlier run's temporary mounts: %w", err)
	}
	replacePlugins(o.NoSync)
	diff.RegisterProcessor(decompress.Layers) // later ones come first
	// Not ctx: requests must not fail before stop because ctx has ended.
	srv, err := server.New(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, err
	}
	stop = sync.OnceFunc(func() {
		srv.Stop()
		os.Remove(o.Dirs.Embedded().Socket())
		os.Remove(ttrpcSocket(o.Dirs))
	})
	if err := srv.Start(context.WithoutCancel(ctx)); err != nil {
		stop()
		return nil, err
	}
	srv.Wait()
	for _, s := range []string{o.Dirs.Embedded().Socket(), ttrpcSocket(o.Dirs)} {
		if err := os.Chmod(s, 0o600); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

func config(o Options, snapshotter string) *srvconfig.Config {
	c := &srvconfig.Config{
		Version: version.ConfigVersion,
		Root:    o.Dirs.Embedded().Data(),
		State:   o.Dirs.Embedded().State(),
		// The TMPDIR of the process that started the daemon may not exist as long as the daemon. Shims
		// write small files there for runc, for each exec: also while the disk of the data is full.
		TempDir: filepath.Join(o.Dirs.Embedded().State(), "tmp"),
		// Otherwise a plugin that fails is only missing, and requests fail later with an unclear
		// error.
		RequiredPlugins: []string{
			"io.containerd.metadata.v1.bolt",
			"io.containerd.snapshotter.v1." + snapshotter,
			"io.containerd.runtime.v2.task",
			"io.containerd.grpc.v1.tasks",
			"io.containerd.server.v1.grpc",
			"io.containerd.server.v1.ttrpc",
		},
		Plugins: map[string]any{
			"io.containerd.server.v1.grpc":   map[string]any{"address": o.Dirs.Embedded().Socket()},
			"io.containerd.server.v1.ttrpc":  map[string]any{"address": ttrpcSocket(o.Dirs)},
			"io.containerd.metadata.v1.bolt": map[string]any{"no_sync": o.NoSync},
		},
	}
	// By default, all containerds of a machine share one directory for the shims' sockets. The
	// length of its path is limited more than that of other sockets, so with a long run directory
	// the default is used.
	if dir := shimSockets(o.Dirs); len(dir) <= maxShimSocketDir {
		c.Plugins["io.containerd.shim.v1.manager"] = map[string]any{"socket_dir": dir}
	}
	return c
}

func shimSockets(d layout.Dirs) string { return filepath.Join(d.Embedded().State(), "s") }

// unmountLeftovers unmounts what is still mounted below the daemon's directories. It must be called
// only if there is no task.
func unmountLeftovers(o Options) {
	for _, dir := range []string{o.Dirs.Embedded().State(), o.Dirs.Embedded().Data()} {
		left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil {
			o.Log.Warn("listing leftover mounts failed", "dir", dir, "err", err)
			continue
		}
		for i := len(left) - 1; i >= 0; i-- {
			if left[i].Mountpoint == dir {
				continue // the administrator mounted a file system of its own here
			}
			if err := sys.Detach(left[i].Mountpoint); err != nil && !errors.Is(err, sys.ErrNotMounted) {
				o.Log.Warn("unmounting a leftover mount failed", "dir", left[i].Mountpoint, "err", err)
			}
		}
	}
}
