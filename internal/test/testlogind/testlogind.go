// Package testlogind is a logind for tests. On a private bus of Debian's dbus-daemon, it grants
// inhibitor locks, announces shutdowns, and reports which locks are held. It shuts nothing down.
// Begin reading at Machine.
package testlogind

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"golang.org/x/sys/unix"
)

const (
	service = "org.freedesktop.login1"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	manager = service + ".Manager"
)

// Machine is a simulated machine whose shutdown can be announced.
type Machine struct {
	// Address is the address of its bus.
	Address string

	t    testing.TB
	conn *dbus.Conn
	mu   sync.Mutex
	held []*os.File // the machine's ends of the locks
	// down: a shutdown has begun, and no lock is granted any more.
	down bool
}

// patience is how long a test waits for anything that it expects.
const patience = 60 * time.Second

// New starts a Machine whose shutdown waits at most delay for inhibitor locks. The Machine ends
// with the test. The test is skipped if there is no dbus-daemon.
func New(t testing.TB, delay time.Duration) *Machine {
	t.Helper()
	m := &Machine{Address: bus(t), t: t}
	conn, err := dbus.Connect(m.Address)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	m.conn = conn
	must(t, conn.Export(inhibitor{m}, path, manager))
	_, err = prop.Export(conn, path, prop.Map{manager: {"InhibitDelayMaxUSec": {Value: uint64(delay.Microseconds())}}})
	must(t, err)
	_, err = conn.RequestName(service, dbus.NameFlagDoNotQueue)
	must(t, err)
	return m
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bus starts a bus and returns its address.
func bus(t testing.TB) string {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed (make test does it)")
	}
	dir, err := os.MkdirTemp("", "pb") // short, because socket paths are limited
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "bus.conf")
	text := `<busconfig><type>session</type><listen>unix:path=` + dir + `/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>`
	must(t, os.WriteFile(config, []byte(text), 0o600))
	cmd := exec.Command(daemon, "--nofork", "--print-address", "--config-file="+config)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(address)
}

// inhibitor has the methods that clients of the bus can call.
type inhibitor struct{ m *Machine }

// Inhibit implements logind's method: the lock is held as long as the other end of the pipe is
// open.
func (i inhibitor) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || who != "podrun" || why == "" || mode != "delay" {
		return 0, dbus.MakeFailedError(errors.New("not the lock that a service should take"))
	}
	i.m.mu.Lock()
	down := i.m.down
	i.m.mu.Unlock()
	if down {
		return 0, dbus.NewError(service+".OperationInProgress", []any{"the machine shuts down"})
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	go i.m.handOver(ends) // the descriptor is sent after this method returns
	return dbus.UnixFD(ends[1]), nil
}

// handOver keeps the sent end of the pipe open until another process has it; from then on the lock
// is held.
func (m *Machine) handOver(ends [2]int) {
	defer func() { _ = unix.Close(ends[1]) }()
	var pipe unix.Stat_t
	if err := unix.Fstat(ends[1], &pipe); err != nil {
		return // the test cannot be failed from here; Lock times out
	}
	for end := time.Now().Add(patience); !sent(pipe.Ino) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = append(m.held, os.NewFile(uintptr(ends[0]), "lock"))
}

// sent reports whether a pipe is also open elsewhere: in another program, or a third time in this
// one. A child process of this program that is about to execute another program does not count.
func sent(pipe uint64) bool {
	own, _ := os.Readlink("/proc/self/exe")
	here := 0
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != fmt.Sprintf("pipe:[%d]", pipe) {
			continue
		}
		process := filepath.Dir(filepath.Dir(fd))
		if filepath.Base(process) == strconv.Itoa(os.Getpid()) {
			here++
		} else if exe, err := os.Readlink(process + "/exe"); err == nil && exe != own {
			return true
		}
	}
	return here > 2
}

// Lock waits for the lock with index n and returns it. Indexes count from 0, in the order in which
// the locks were taken.
func (m *Machine) Lock(n int) *Lock {
	m.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		m.mu.Lock()
		held := m.held
		m.mu.Unlock()
		if len(held) > n {
			return &Lock{held[n]}
		}
		if time.Now().After(end) {
			m.t.Fatalf("no lock %d", n)
		}
	}
}

// Lock is an inhibitor lock.
type Lock struct{ end *os.File }

// Held reports whether the lock was still held after the duration within.
func (l *Lock) Held(within time.Duration) bool {
	_ = l.end.SetReadDeadline(time.Now().Add(within))
	_, err := l.end.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// Forge sends the signal of a shutdown as another peer of the bus: to all, and to each peer.
func (m *Machine) Forge(begins bool) {
	m.t.Helper()
	m.Flood(begins)
}

// Flood sends a signal with the name of a shutdown's and any content, as another peer of the bus, to all, if it has no
// files, and to each other peer. It returns when the bus has passed it on.
func (m *Machine) Flood(content ...any) {
	m.t.Helper()
	peer, err := dbus.Connect(m.Address)
	must(m.t, err)
	defer peer.Close()
	if _, files := content[0].(dbus.UnixFD); !files {
		must(m.t, peer.Emit(path, manager+".PrepareForShutdown", content...))
	}
	var names []string
	must(m.t, peer.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names))
	for _, name := range names {
		if !strings.HasPrefix(name, ":") || name == m.conn.Names()[0] || name == peer.Names()[0] {
			continue
		}
		message := &dbus.Message{Type: dbus.TypeSignal, Body: content, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldInterface: dbus.MakeVariant(manager), dbus.FieldMember: dbus.MakeVariant("PrepareForShutdown"),
			dbus.FieldPath: dbus.MakeVariant(path), dbus.FieldDestination: dbus.MakeVariant(name),
			dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(content...)),
		}}
		must(m.t, peer.Send(message, nil).Err)
	}
	must(m.t, peer.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err) // all of it was passed on
}

// Shutdown announces that the machine shuts down or, with false, that the shutdown is cancelled.
func (m *Machine) Shutdown(begins bool) {
	m.t.Helper()
	m.set(begins)
	must(m.t, m.conn.Emit(path, manager+".PrepareForShutdown", begins))
}

// Forget makes the machine forget a shutdown that it has announced, as logind does with shutdown -c. It says nothing.
func (m *Machine) Forget() { m.set(false) }

func (m *Machine) set(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}
