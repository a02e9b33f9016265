//go:build ownshim

package embedded

import _ "embed"

// shimProgram is what hack/compress made of the program internal/embedded/runcshim/program.
//
//go:embed containerd-shim-runc-v2.zst
var shimProgram []byte
