//go:build !ownshim

package embedded

// shimProgram is empty where podrun is not built by make: it is the shim itself then, which works as
// well and needs more memory.
var shimProgram []byte
