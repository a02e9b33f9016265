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
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/version"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

// readyEnv names the file descriptor on which Serve tells Ensure that it answers.
const readyEnv = "PODRUN_CONTAINERD_READY_FD"

// maxShimSocketDir is the longest directory, in bytes, that containerd takes for its shims' sockets.
const maxShimSocketDir = 42

// rootPatience is how long a daemon waits for the root directory when the one that has it has lost its run directory:
// that one ends as soon as it notices, and has done what it is at. It is less than whoever started this one waits.
const rootPatience = startTimeout - 5*time.Second

// lockRoot takes the root directory for a daemon that has its run directory.
func lockRoot(ctx context.Context, o Options) (*os.File, error) {
	for end := time.Now().Add(rootPatience); ; {
		root, err := lockDaemon(rootLock(o.Dirs), o.Dirs.Run+"\n")
		if err == nil {
			return root, nil
		}
		if !errors.Is(err, ErrRunning) {
			return nil, err
		}
		// One whose run directory has the same path had another directory there before. It may not have said yet.
		holder, _ := os.ReadFile(rootLock(o.Dirs))
		_, run, _ := strings.Cut(string(holder), "\n")
		if run != "" && run != o.Dirs.Run+"\n" || time.Now().After(end) {
			return nil, fmt.Errorf("%s is in use by a podrun with another run directory, %s: %w", o.Dirs.Containerd(), strings.TrimSpace(run), err)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// Serve runs containerd in this process until ctx ends or nothing needs it any more; both are success.
// It changes the process as a whole (containerd's log and plugin registry, TMPDIR, umask), so it is called once, in a
// process of its own, which ends when it has returned.
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
	// Of the same directory as the daemon's lock: one that takes its place later has other users.
	users, err := openLock(usersLock(o.Dirs))
	if err != nil {
		return err
	}
	root, err := lockRoot(ctx, o)
	if err != nil {
		return err
	}
	defer root.Close()
	// The roots of images and containers get the mode bits that this leaves.
	unix.Umask(0o022)
	captureLog(o.Log)
	if err := sys.LinkSelf(o.Dirs.Shim()); err != nil {
		return fmt.Errorf("making the shim %s: %w", o.Dirs.Shim(), err)
	}
	snapshotter, err := chooseSnapshotter(o)
	if err != nil {
		return fmt.Errorf("choosing the snapshotter: %w", err)
	}
	if err := sweepSockets(ctx, o.Dirs); err != nil {
		o.Log.Warn("sockets of shims that have ended stay", "why", err)
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

// readyPipe is the descriptor of the pipe that Ensure passed, or -1. On failure it is left to the end of the
// process: by then the reason has been printed, which is what Ensure reads after the pipe's end.
func readyPipe() int {
	fd, err := strconv.Atoi(os.Getenv(readyEnv))
	os.Unsetenv(readyEnv)
	if err != nil {
		return -1
	}
	unix.CloseOnExec(fd)
	return fd
}

// reportReady does not mind a starter that has gone.
func reportReady(fd int) {
	if fd < 0 {
		return
	}
	_, _ = unix.Write(fd, []byte("ready\n")) // nobody may be listening any more
	unix.Close(fd)
}

// startContainerd starts the daemon; it answers when this returns. stop may be called more than once.
func startContainerd(ctx context.Context, o Options, snapshotter string) (stop func(), err error) {
	keepPlugins(func(uri string) bool { return uri != shimPlugin })
	cfg := config(o, snapshotter)
	if err := server.CreateTopLevelDirectories(cfg); err != nil {
		return nil, err
	}
	if err := mount.SetTempMountLocation(filepath.Join(cfg.Root, "tmpmounts")); err != nil {
		return nil, err
	}
	if _, err := mount.CleanupTempMounts(0); err != nil {
		return nil, fmt.Errorf("unmounting what an earlier run left: %w", err)
	}
	// Not ctx: its end must not break calls before stop.
	srv, err := server.New(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, err
	}
	stop = sync.OnceFunc(func() {
		srv.Stop()
		os.Remove(o.Dirs.ContainerdSocket())
		os.Remove(ttrpcSocket(o.Dirs))
	})
	if err := srv.Start(context.WithoutCancel(ctx)); err != nil {
		stop()
		return nil, err
	}
	srv.Wait()
	for _, s := range []string{o.Dirs.ContainerdSocket(), ttrpcSocket(o.Dirs)} {
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
		Root:    o.Dirs.Containerd(),
		State:   o.Dirs.ContainerdState(),
		// The daemon outlives whoever's TMPDIR it was started with.
		TempDir: filepath.Join(o.Dirs.Containerd(), "tmp"),
		// A plugin that fails is otherwise only missing, and calls fail later and for no clear reason.
		RequiredPlugins: []string{
			"io.containerd.metadata.v1.bolt",
			"io.containerd.snapshotter.v1." + snapshotter,
			"io.containerd.runtime.v2.task",
			"io.containerd.grpc.v1.tasks",
			"io.containerd.server.v1.grpc",
			"io.containerd.server.v1.ttrpc",
		},
		Plugins: map[string]any{
			"io.containerd.server.v1.grpc":          map[string]any{"address": o.Dirs.ContainerdSocket()},
			"io.containerd.server.v1.ttrpc":         map[string]any{"address": ttrpcSocket(o.Dirs)},
			"io.containerd.metadata.v1.bolt":        map[string]any{"no_sync": o.NoSync},
			"io.containerd.service.v1.diff-service": map[string]any{"sync_fs": !o.NoSync},
		},
	}
	// By default all containerds of a machine share one directory for this. Its length is limited more
	// than the other sockets', so a long run directory has to do with that one.
	if dir := shimSockets(o.Dirs); len(dir) <= maxShimSocketDir {
		c.Plugins["io.containerd.shim.v1.manager"] = map[string]any{"socket_dir": dir}
	}
	return c
}

func shimSockets(d layout.Dirs) string { return filepath.Join(d.ContainerdState(), "s") }

// unmountLeftovers unmounts what is still mounted in the daemon's directories. Only for when no task is there.
func unmountLeftovers(o Options) {
	for _, dir := range []string{o.Dirs.ContainerdState(), o.Dirs.Containerd()} {
		left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil {
			o.Log.Warn("looking for mounts", "dir", dir, "why", err)
			continue
		}
		for i := len(left) - 1; i >= 0; i-- {
			if left[i].Mountpoint == dir {
				continue // whoever made this a file system of its own still wants it
			}
			if err := sys.Detach(left[i].Mountpoint); err != nil && !errors.Is(err, sys.ErrNotMounted) {
				o.Log.Warn("unmounting", "dir", left[i].Mountpoint, "why", err)
			}
		}
	}
}
