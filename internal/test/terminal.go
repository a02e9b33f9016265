package test

import (
	"io"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Terminal returns a terminal of a size in characters, and a function that closes it and returns what was written to
// it. It skips the test where there are no terminals.
func Terminal(t testing.TB, width, height uint16) (terminal *os.File, written func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0) // trusted: the kernel's
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	Must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	Must(t, err)
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0) // trusted: the kernel's
	Must(t, err)
	t.Cleanup(func() { terminal.Close() })
	_, err = term.MakeRaw(int(terminal.Fd())) // which leaves line feeds as they are
	Must(t, err)
	Must(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}))
	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // until the terminal is closed, which is EIO
		read <- string(text)
	}()
	return terminal, func() string {
		terminal.Close()
		return <-read
	}
}
