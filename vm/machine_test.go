package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience is how long anything may take in a guest: computing is ten times slower there without KVM.
	patience = 2 * time.Minute
	// bootTime is how long a boot may take until the agent answers.
	bootTime = 5 * time.Minute
	// stuckTime is for how long a kernel that works writes nothing to the console until the agent answers.
	stuckTime = 45 * time.Second
)

// machine is a Debian in qemu. It is off when the test ends, and its disk is removed.
type machine struct {
	t       *testing.T
	dir     string
	kernel  string // more parameters of the kernel, from the next start on
	qemu    *exec.Cmd
	off     chan struct{} // closed when qemu has ended
	port    net.Conn
	boots   chan string // boot IDs as agents begin
	booted  string      // the boot ID of now
	mu      sync.Mutex
	last    int
	remark  string // of the test's record
	pending map[int]chan reply
}

// boot starts a machine with a copy of the disk.
func boot(t *testing.T, disk string) *machine {
	t.Helper()
	skipUnwanted(t)
	m := &machine{t: t, dir: filepath.Join(setup.dir, t.Name()), pending: map[int]chan reply{}, boots: make(chan string, 8)}
	must(t, os.MkdirAll(m.dir, 0o700))
	t.Cleanup(func() { must(t, os.RemoveAll(m.dir)) })
	must(t, run("cp", "--sparse=always", disk, m.path("disk.img")))
	must(t, run("truncate", "--size=1G", m.path("blank.img")))
	m.start()
	t.Cleanup(m.stop)
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// start switches the machine on and waits for its agent.
func (m *machine) start() {
	m.t.Helper()
	began := time.Now()
	m.qemu, m.off = exec.Command("qemu-system-x86_64", m.arguments()...), make(chan struct{})
	started := make(chan error)
	go func() {
		// The kernel ends qemu with the thread that started it.
		runtime.LockOSThread()
		m.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		err := m.qemu.Start()
		started <- err
		if err == nil {
			_ = m.qemu.Wait() // the test sees it in what is missing
			close(m.off)
		}
	}()
	must(m.t, <-started)
	var err error
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if m.port, err = net.Dial("unix", m.path("agent.sock")); err == nil {
			break
		}
		if time.Now().After(end) || m.ended() {
			m.t.Fatalf("qemu does not listen: %v\n%s", err, m.console())
		}
	}
	go readReplies(m.port, m.receive)
	m.awaitBoot()
	m.t.Logf("booted after %.0f s", time.Since(began).Seconds())
}

// arguments are qemu's. A reboot is real: the machine goes on in the same qemu. A kernel that panics boots again: without
// KVM, one that changes its own code while it boots on two processors sometimes does. /dev/vdc is blank.
func (m *machine) arguments() []string {
	args := append([]string{"-machine", "q35"}, strings.Fields(accelerator())...)
	return append(args, "-m", "2048", "-smp", "2", "-display", "none", "-monitor", "none", "-nic", "none",
		"-chardev", "file,id=console,append=on,path="+m.path("console"), "-serial", "chardev:console",
		"-kernel", filepath.Join(setup.image, "vmlinuz"), "-initrd", filepath.Join(setup.image, "initrd"),
		"-append", "root=/dev/vda rw console=ttyS0 systemd.show_status=0 edd=off panic=1 "+m.kernel,
		"-drive", "if=virtio,format=raw,file="+m.path("disk.img"),
		"-drive", "if=virtio,format=raw,readonly=on,file="+setup.cargo,
		"-drive", "if=virtio,format=raw,file="+m.path("blank.img"),
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
		"-chardev", "socket,id=agent,server=on,wait=off,path="+m.path("agent.sock"),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name="+portName)
}

// accelerator are qemu's arguments for the processor.
func accelerator() string {
	if setup.kvm {
		return "-accel kvm -cpu host"
	}
	return "-accel tcg,thread=multi -cpu max"
}

// kvmWorks tries a kernel with KVM: there are machines where the device is there and a guest stands still.
func kvmWorks() bool {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = device.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "qemu-system-x86_64", "-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "512",
		"-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", filepath.Join(setup.image, "vmlinuz"), "-append", "console=ttyS0 panic=-1")
	out, _ := c.Output() // without a root file system it ends with a panic, or with the time
	return bytes.Contains(out, []byte("Linux version"))
}

// receive takes a line of the agent's.
func (m *machine) receive(r reply) {
	if r.Boot != "" {
		m.boots <- r.Boot
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if to := m.pending[r.ID]; to != nil {
		to <- r
	}
}

// awaitBoot waits for the agent of another boot.
func (m *machine) awaitBoot() {
	m.t.Helper()
	before, size, grown := m.consoleSize(), int64(0), time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for timeout := time.After(bootTime); ; {
		select {
		case boot := <-m.boots:
			if boot == m.booted {
				continue
			}
			m.booted = boot
			if m.oopsed(before) {
				m.t.Log("the kernel panicked once, and booted again")
			}
			return
		case <-tick.C:
			if now := m.consoleSize(); now != size {
				size, grown = now, time.Now()
			}
			// After a panic it does not always boot again by itself.
			if time.Since(grown) > stuckTime && m.oopsed(before) {
				m.t.Log("the kernel hangs after an oops: the machine is switched off and on")
				m.cutPower()
				m.start()
				return
			}
		case <-m.off:
			m.t.Fatalf("the machine went off\n%s", m.console())
		case <-timeout:
			m.t.Fatalf("no boot within %s\n%s", bootTime, m.console())
		}
	}
}

func (m *machine) consoleSize() int64 {
	st, err := os.Stat(m.path("console"))
	if err != nil {
		return 0 // nothing was written yet
	}
	return st.Size()
}

// oopsed reports whether the kernel has written of a fault to the console since it had that size.
func (m *machine) oopsed(since int64) bool {
	text, _ := os.ReadFile(m.path("console"))
	text = text[min(since, int64(len(text))):]
	return bytes.Contains(text, []byte("Kernel panic")) || bytes.Contains(text, []byte("---[ end trace"))
}

// try runs a program in the guest, for at most that time.
func (m *machine) try(limit time.Duration, stdin string, args ...string) (reply, error) {
	answer := make(chan reply, 1)
	m.mu.Lock()
	m.last++
	id := m.last
	m.pending[id] = answer
	err := json.NewEncoder(m.port).Encode(request{ID: id, Args: args, Stdin: []byte(stdin), Timeout: limit})
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.pending, id)
		m.mu.Unlock()
	}()
	if err != nil {
		return reply{}, err
	}
	for timeout := time.After(limit + 30*time.Second); ; {
		select {
		case r := <-answer:
			return r, nil
		case boot := <-m.boots:
			if boot == m.booted {
				continue
			}
			m.boots <- boot // for awaitBoot
			return reply{}, fmt.Errorf("the machine has booted meanwhile: %s\n%s", args, m.lastWords())
		case <-m.off:
			return reply{}, errors.New("the machine is off")
		case <-timeout:
			return reply{}, fmt.Errorf("the agent does not answer: %s", args)
		}
	}
}

// run runs a program in the guest and returns its result, whatever it is.
func (m *machine) run(args ...string) reply {
	m.t.Helper()
	r, err := m.try(patience, "", args...)
	must(m.t, err)
	return r
}

// sh runs a script in the guest, which must succeed, and returns what it printed.
func (m *machine) sh(script string) string {
	m.t.Helper()
	r := m.run("sh", "-euc", script)
	if r.Code != 0 {
		m.t.Fatalf("%s: %v", script, r)
	}
	return strings.TrimSpace(string(r.Stdout))
}

// write writes a file in the guest, at once for all who look.
func (m *machine) write(path, text string) {
	m.t.Helper()
	r, err := m.try(patience, text, "sh", "-euc", `mkdir -p "$(dirname "$1")"; cat >"$1~"; mv "$1~" "$1"`, "sh", path)
	must(m.t, err)
	if r.Code != 0 {
		m.t.Fatalf("writing %s: %v", path, r)
	}
}

// await repeats the script until it succeeds.
func (m *machine) await(what, script string) {
	m.t.Helper()
	var r reply
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if r = m.run("sh", "-euc", script); r.Code == 0 {
			return
		}
	}
	m.t.Fatalf("waiting for %s: %v", what, r)
}

// reboot has the machine boot again.
func (m *machine) reboot() {
	m.t.Helper()
	began := time.Now()
	// The agent may end before its answer.
	_, err := m.try(patience, "", "systemctl", "--no-block", "reboot")
	must(m.t, err)
	m.awaitBoot()
	m.t.Logf("booted again after %.0f s", time.Since(began).Seconds())
}

// powerOff has the machine switch itself off, and returns how long that took.
func (m *machine) powerOff() time.Duration {
	m.t.Helper()
	began := time.Now()
	if _, err := m.try(patience, "", "systemctl", "--no-block", "poweroff"); err != nil && !m.ended() {
		m.t.Fatal(err)
	}
	select {
	case <-m.off:
	case <-time.After(bootTime):
		m.t.Fatalf("not off within %s\n%s", bootTime, m.console())
	}
	took := time.Since(began)
	m.closePort()
	return took
}

// stop cuts the machine's power. Of a test that failed it logs first how things were.
func (m *machine) stop() {
	if m.t.Failed() && !m.ended() {
		r, err := m.try(20*time.Second, "", "sh", "-c", "podrun get pods -A; podrun events; journalctl -b -n 80 --no-pager")
		m.t.Logf("in the guest: %v %v", r, err)
	}
	m.cutPower()
}

// cutPower ends the machine at once. Its disk has what the guest had written to it; start boots from that.
func (m *machine) cutPower() {
	if !m.ended() {
		_ = m.qemu.Process.Kill()
		<-m.off
	}
	m.closePort()
}

func (m *machine) closePort() {
	if m.port != nil {
		_ = m.port.Close()
	}
}

func (m *machine) ended() bool {
	select {
	case <-m.off:
		return true
	default:
		return false
	}
}

// console is the end of what the machine wrote to its console.
func (m *machine) console() string {
	text, _ := os.ReadFile(m.path("console"))
	return "console: " + string(text[max(0, len(text)-4000):])
}

// lastWords are those of the kernel before its last boot.
func (m *machine) lastWords() string {
	text, _ := os.ReadFile(m.path("console"))
	text = text[:max(0, bytes.LastIndex(text, []byte("Linux version ")))]
	return "console: " + string(text[max(0, len(text)-4000):])
}

// newLines reads lines that may be as long as a program's output.
func newLines(from io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	return lines
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// skipUnwanted skips a test where no virtual machine is wanted.
func skipUnwanted(t *testing.T) {
	t.Helper()
	if !wanted() {
		t.Skip("tests in virtual machines run as root by make vm (PODRUN_VM=1)")
	}
}
