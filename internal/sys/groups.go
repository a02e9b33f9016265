package sys

import (
	"errors"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// errEnding reports that no program is started any more because podrun ends.
var errEnding = errors.New("podrun is ending")

// startTime is how long EndPrograms waits for programs that are being started.
const startTime = 500 * time.Millisecond

// groups are the process groups of the running programs, which are killed when podrun ends. Without
// that, the kernel would kill each program, but not the processes that the program has started.
type groups struct {
	mu       sync.Mutex
	ending   bool
	starting int
	leaders  map[int]bool
}

// ofProcess are the groups of this process.
var ofProcess = &groups{}

// EndPrograms kills the programs that this process runs, together with their process groups, and
// lets no other one start. It is called when the process ends without waiting for the callers of
// Program.Run.
func EndPrograms() { ofProcess.end() }

// run is c.Run, with the program's process group recorded.
func (g *groups) run(c *exec.Cmd) error {
	if !g.begin() {
		return errEnding
	}
	err := c.Start()
	if err != nil {
		g.begun(0)
		return err
	}
	defer g.ended(c.Process.Pid)
	g.begun(c.Process.Pid)
	return c.Wait()
}

func (g *groups) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending {
		return false
	}
	g.starting++
	return true
}

// begun records the leader of a started process group; 0: the start failed.
func (g *groups) begun(leader int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.starting--
	switch {
	case leader == 0:
		return
	case g.ending:
		_ = unix.Kill(-leader, unix.SIGKILL)
	}
	if g.leaders == nil {
		g.leaders = map[int]bool{}
	}
	g.leaders[leader] = true
}

func (g *groups) ended(leader int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.leaders, leader)
}

func (g *groups) end() {
	g.mu.Lock()
	g.ending = true
	for leader := range g.leaders {
		_ = unix.Kill(-leader, unix.SIGKILL)
	}
	g.mu.Unlock()
	for end := time.Now().Add(startTime); time.Now().Before(end) && g.isStarting(); {
		time.Sleep(time.Millisecond)
	}
}

func (g *groups) isStarting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.starting > 0
}
