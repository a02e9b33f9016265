package heap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// self is the file of this program.
const self = "/proc/self/exe"

// letTextGo releases the memory pages of this program's code and constants, because most of them
// are only needed at the start. A page that is used again comes back from the page cache within
// microseconds, or from the file. letTextGo does nothing in a position-independent executable,
// because that would lose its relocations.
func letTextGo() error {
	fixed, err := isFixed()
	if err != nil || !fixed {
		return err
	}
	var own unix.Stat_t
	if err := unix.Stat(self, &own); err != nil {
		return fmt.Errorf("inspecting podrun's program file: %w", err)
	}
	proc, err := procfs.Self()
	if err != nil {
		return fmt.Errorf("finding podrun's process in /proc: %w", err)
	}
	maps, err := proc.ProcMaps()
	if err != nil {
		return fmt.Errorf("reading podrun's memory map: %w", err)
	}
	for _, m := range maps {
		if m.Inode != own.Ino || m.Perms.Write || !strings.HasPrefix(m.Pathname, "/") {
			continue
		}
		if _, _, errno := unix.Syscall(
			unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED,
		); errno != 0 {
			return fmt.Errorf("releasing memory of podrun's program: %w", errno)
		}
	}
	return nil
}

// isFixed reports whether the program is loaded at the address in its file (ET_EXEC).
func isFixed() (bool, error) {
	f, err := os.Open(self)
	if err != nil {
		return false, fmt.Errorf("opening podrun's program file: %w", err)
	}
	defer f.Close()
	const typeAt, executable = 16, 2
	var header [typeAt + 2]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return false, errors.Join(errors.New("podrun's program file has no ELF header"), err)
	}
	return binary.NativeEndian.Uint16(header[typeAt:]) == executable, nil
}
