package sys

import (
	"errors"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// errEnding says that no program is started because podrun ends.
var errEnding = errors.New("podrun is ending")

// startTime is how long a program that is just being started is waited for when podrun ends.
const startTime = 500 * time.Millisecond

// groups are the process groups of the programs that run, so that none is left when podrun ends: the kernel then kills
// a program, but not what it has started.
type groups struct {
	mu       sync.Mutex
	ending   bool
	starting int
	leaders  map[int]bool
}

// ofProcess are those of this process.
var ofProcess = &groups{}

// EndPrograms kills the programs that this process runs, with their process groups, and lets no other one begin. It is
// for the end of the process, when whoever waits for a program is not waited for.
func EndPrograms() { ofProcess.end() }

// run is c.Run.
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

// begun hears of a program that was started; 0: none was.
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
