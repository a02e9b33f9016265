package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrAnother is that another socket has the path of one.
var ErrAnother = errors.New("it is another socket than before")

// Identity distinguishes a socket from another one that has been made at the same path.
type Identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	// Made is when, in nanoseconds: a number of an inode is used again.
	Made int64 `json:"made"`
}

// Identify returns the identity of a socket of root's at path, or why that is none.
func Identify(path string) (Identity, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Identity{}, err
	}
	return IdentityOf(path, info)
}

// IdentityOf is Identify for what os.Lstat says of the path.
func IdentityOf(path string, info fs.FileInfo) (Identity, error) {
	if info.Mode().Type() != fs.ModeSocket {
		return Identity{}, fmt.Errorf("%s is not a socket", path)
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok || of.Uid != 0 {
		return Identity{}, fmt.Errorf("%s: does not belong to root", path)
	}
	return Identity{of.Dev, of.Ino, of.Mtim.Nano()}, nil // a change of its mode or links leaves mtime
}
