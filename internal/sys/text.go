package sys

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

// LetTextGo unmaps the pages of this program's code and constants: much of them is only ever needed at the
// start. What is used again comes back from the page cache within microseconds, or from the file. A program
// that is loaded at an address of the day is left as it is: what was relocated in it would be lost.
func LetTextGo() error {
	fixed, err := isFixed()
	if err != nil || !fixed {
		return err
	}
	var own unix.Stat_t
	if err := unix.Stat(self, &own); err != nil {
		return fmt.Errorf("looking at the own program: %w", err)
	}
	proc, err := procfs.Self()
	if err != nil {
		return fmt.Errorf("finding the own process: %w", err)
	}
	maps, err := proc.ProcMaps()
	if err != nil {
		return fmt.Errorf("reading the own memory's map: %w", err)
	}
	for _, m := range maps {
		if m.Inode != own.Ino || m.Perms.Write || !strings.HasPrefix(m.Pathname, "/") {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("unmapping a part of the own program: %w", errno)
		}
	}
	return nil
}

// isFixed reports that the program is loaded where its file says (ET_EXEC).
func isFixed() (bool, error) {
	f, err := os.Open(self)
	if err != nil {
		return false, fmt.Errorf("opening the own program: %w", err)
	}
	defer f.Close()
	const typeAt, executable = 16, 2
	var header [typeAt + 2]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return false, errors.Join(errors.New("the own program has no ELF header"), err)
	}
	return binary.NativeEndian.Uint16(header[typeAt:]) == executable, nil
}
