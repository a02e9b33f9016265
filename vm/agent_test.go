package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Test and agent speak in JSON lines over a virtio serial port.

// request is what the agent is to execute.
type request struct {
	ID      int           `json:"id"`
	Args    []string      `json:"args"`
	Stdin   []byte        `json:"stdin,omitempty"`
	Timeout time.Duration `json:"timeout"`
}

// reply is the result of a request, or with Boot alone the agent's first words.
type reply struct {
	ID     int    `json:"id,omitempty"`
	Boot   string `json:"boot,omitempty"` // the kernel's boot ID
	Code   int    `json:"code"`           // -1 without an exit code
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	Err    string `json:"err,omitempty"` // why there is no exit code
}

func (r reply) String() string {
	return strings.TrimSpace(fmt.Sprintf("exit code %d\n%s%s%s", r.Code, r.Stdout, r.Stderr, r.Err))
}

// portName is the name of the serial port.
const portName = "podrun.agent"

// serveAgent executes what the other side of the port asks for, until the machine stops it.
func serveAgent() error {
	port, err := openPort(filepath.Join("/dev/virtio-ports", portName))
	if err != nil {
		return err
	}
	defer port.Close()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(port)
	send := func(r reply) error {
		mu.Lock()
		defer mu.Unlock()
		return out.Encode(r)
	}
	// What was written before is a line cut off by the end of the agent before, or nothing.
	if _, err := port.Write([]byte("\n")); err != nil {
		return err
	}
	if err := send(reply{Boot: strings.TrimSpace(string(boot))}); err != nil {
		return err
	}
	for in := json.NewDecoder(port); ; {
		var r request
		if err := in.Decode(&r); err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		go func() {
			if err := send(execute(r)); err != nil {
				fmt.Fprintln(os.Stderr, "agent:", err)
			}
		}()
	}
}

// openPort waits for the port, which udev names a moment after the kernel has it.
func openPort(path string) (*os.File, error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		port, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil || !errors.Is(err, os.ErrNotExist) || time.Now().After(end) {
			return port, err
		}
	}
}

// execute runs a program with all that it starts, at most for its time-out.
func execute(r request) reply {
	ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, r.Args[0], r.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(r.Stdin), &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	err := c.Run()
	out := reply{ID: r.ID, Code: -1, Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		out.Err = fmt.Sprintf("not done within %s", r.Timeout)
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		out.Code = 0
	case errors.As(err, &exit):
		out.Code = exit.ExitCode()
	default:
		out.Err = err.Error()
	}
	return out
}

// readReplies passes on the agents' lines until the port is closed. A line that a reboot cut off is none.
func readReplies(port io.Reader, to func(reply)) {
	for in := newLines(port); in.Scan(); {
		var r reply
		if json.Unmarshal(in.Bytes(), &r) == nil {
			to(r)
		}
	}
}
