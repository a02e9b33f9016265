package sandbox

import (
	"bytes"
	"debug/elf"
	"testing"
)

func TestPauseProgram(t *testing.T) {
	t.Parallel()
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		program, err := pauseProgram(arch)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(program))
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		load := f.Progs[0]
		if f.Machine != machine || f.Type != elf.ET_EXEC || f.Entry != load.Vaddr+176 ||
			load.Filesz != uint64(len(program)) || len(program) > 512 {
			t.Errorf("%s: %+v, %+v, %d bytes", arch, f.FileHeader, load.ProgHeader, len(program))
		}
	}
	if _, err := pauseProgram("vax"); err == nil {
		t.Error("a program for anything")
	}
}
