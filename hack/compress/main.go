// Command compress compresses a program for podrun's build: its output is the SHA-256 of the file, and
// the file in zstd's format. The same file always gives the same bytes.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: compress FILE OUTPUT")
		os.Exit(2)
	}
	if err := compress(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "compressing %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func compress(file, output string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	to, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	return os.WriteFile(output, slices.Concat(sum[:], to.EncodeAll(text, nil)), 0o644)
}
