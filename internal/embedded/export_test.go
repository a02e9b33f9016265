package embedded

import "crypto/sha256"

// WithoutProgram makes this program itself the shim, as in a build without make.
func WithoutProgram() { shimProgram = nil }

// ChooseSnapshotter is for a daemon with those directories.
var ChooseSnapshotter = chooseSnapshotter

// ShimProgram returns the program that the build put into this one; nil if none.
func ShimProgram() ([]byte, error) {
	if len(shimProgram) == 0 {
		return nil, nil
	}
	return decompressed(shimProgram[sha256.Size:])
}
