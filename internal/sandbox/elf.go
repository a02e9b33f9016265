package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// pauseProgram returns a complete ELF program for the architecture. It ignores SIGCHLD, so that the
// kernel reaps the orphans of a process namespace whose first process it is, and waits for ever. It
// is machine code, so that it takes a few kilobytes of memory and needs neither an image nor a file
// system.
func pauseProgram(arch string) ([]byte, error) {
	// struct sigaction: SIG_IGN, no flags, no restorer, an empty mask.
	ignore := binary.LittleEndian.AppendUint64(nil, 1)
	ignore = append(ignore, make([]byte, 24)...)
	switch arch {
	case "amd64":
		return wrap(62, append([]byte{
			0xb8, 13, 0, 0, 0, // mov eax, rt_sigaction
			0xbf, 17, 0, 0, 0, // mov edi, SIGCHLD
			0x48, 0x8d, 0x35, 29, 0, 0, 0, // lea rsi, [rip+29], the structure after the code
			0x31, 0xd2, // xor edx, edx
			0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8, the mask's size
			0x0f, 0x05, // syscall
			0x31, 0xff, // again: xor edi, edi
			0x31, 0xf6, // xor esi, esi
			0x31, 0xd2, // xor edx, edx
			0x4d, 0x31, 0xd2, // xor r10, r10
			0xb8, 15, 1, 0, 0, // mov eax, ppoll
			0x0f, 0x05, // syscall
			0xeb, 0xee, // jmp again
			0x90, // nop
		}, ignore...)), nil
	case "arm64":
		var code []byte
		for _, instruction := range []uint32{
			0xd2800220, // mov x0, SIGCHLD
			0x100001a1, // adr x1, the structure after the code
			0xd2800002, // mov x2, 0
			0xd2800103, // mov x3, 8, the mask's size
			0xd28010c8, // mov x8, rt_sigaction
			0xd4000001, // svc 0
			0xd2800000, // again: mov x0, 0
			0xd2800001, // mov x1, 0
			0xd2800002, // mov x2, 0
			0xd2800003, // mov x3, 0
			0xd2800004, // mov x4, 0
			0xd2800928, // mov x8, ppoll
			0xd4000001, // svc 0
			0x17fffff9, // b again
		} {
			code = binary.LittleEndian.AppendUint32(code, instruction)
		}
		return wrap(183, append(code, ignore...)), nil
	}
	return nil, fmt.Errorf("a shared process namespace is not supported on %s", arch)
}

// wrap returns the smallest ELF file that the kernel executes with this code; machine is the ELF
// number of the architecture.
func wrap(machine uint16, code []byte) []byte {
	const headers, base = 64 + 2*56, 0x400000
	size := uint64(headers + len(code))
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v) // to memory
		}
	}
	put([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9), uint16(2), machine, uint32(1),
		uint64(base+headers), uint64(64), uint64(0), uint32(0), uint16(64), uint16(56), uint16(2),
		uint16(0), uint16(0), uint16(0))
	// The whole file is loaded, readable and executable; the stack is not executable.
	put(uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000))
	put(uint32(0x6474e551), uint32(6), make([]byte, 48))
	put(code)
	return b.Bytes()
}
