package decompress

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// frame returns a zstd frame of zeros with a window of 2^log bytes: a header, and a few bytes for each 128 KiB.
func frame(log, zeros int) []byte {
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, byte(log-10) << 3}
	return append(out, blocks(zeros)...)
}

func blocks(zeros int) (out []byte) {
	const last, sameBytes, most = 1, 1 << 1, 128 << 10
	block := func(header int, content ...byte) {
		out = append(append(out, binary.LittleEndian.AppendUint32(nil, uint32(header))[:3]...), content...)
	}
	for ; zeros > most; zeros -= most {
		block(sameBytes|most<<3, 0)
	}
	block(last|sameBytes|zeros<<3, 0)
	return out
}

func read(stream []byte) ([]byte, error) {
	r, err := Stream(bytes.NewReader(stream))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// TestNoProgram checks that no program of the machine reads what an image has, as containerd lets unpigz and igzip do.
func TestNoProgram(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"unpigz", "igzip"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n: >"+dir+"/ran\nexec gzip -dc\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, "layer")
	_ = z.Close()
	for name, stream := range map[string][]byte{"gzip": packed.Bytes(), "plain": []byte("layer")} {
		if got, err := read(stream); err != nil || string(got) != "layer" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a program was run")
	}
}

// TestWindow checks that a stream is read with as much memory as zstd's own program accepts, and not with more.
func TestWindow(t *testing.T) {
	const zeros = 1 << 20
	single := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x10}, blocks(zeros)...) // it is 256 MiB long, it says
	skipped := []byte{0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2}
	for name, c := range map[string]struct {
		stream []byte
		frames int // 0: refused
	}{
		"most":           {frame(27, zeros), 1},
		"more":           {frame(28, zeros), 0},
		"most there is":  {frame(41, zeros), 0},
		"length":         {single, 0},
		"after skipped":  {append(skipped, frame(29, zeros)...), 0},
		"second frame":   {append(frame(20, zeros), frame(29, zeros)...), 0},
		"several frames": {append(frame(20, zeros), frame(24, zeros)...), 2},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := read(c.stream)
			runtime.ReadMemStats(&after)
			if c.frames == 0 {
				if err == nil || !strings.Contains(err.Error(), "zstd window of more than 128 MiB") {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			} else if err != nil || len(got) != c.frames*zeros {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > maxWindow+50<<20 {
				t.Errorf("it took %d MiB", used>>20)
			}
		})
	}
}

// TestStream checks that each kind of compression is read.
func TestStream(t *testing.T) {
	t.Parallel()
	want := []byte(strings.Repeat("some text\n", 1000))
	var zipped, packed bytes.Buffer
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{gzip.NewWriter(&zipped), z} {
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, stream := range map[string][]byte{"none": want, "gzip": zipped.Bytes(), "zstd": packed.Bytes()} {
		if got, err := read(stream); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if got, err := read([]byte("short")); err != nil || string(got) != "short" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := read(packed.Bytes()[:packed.Len()-5]); err == nil {
		t.Error("a stream that is cut off is read")
	}
}
