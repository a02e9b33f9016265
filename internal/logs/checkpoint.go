package logs

import (
	"encoding/binary"
	"hash/crc32"
)

// checkpoint says how far an instance's conversion is. The raw files up to raw are in the log's first
// size bytes; whatever the log has beyond them was not finished and is cut off.
type checkpoint struct {
	seq  uint64
	raw  [2]int64
	size int64
}

// A checkpoint is written in place, into the two slots in turn, each with its checksum: a torn write
// leaves the other. Unlike a rename that needs no free block, so a full disk cannot hold it up, and the
// file's identity stays for the lock that is taken on it.
const (
	slotSize  = 64
	slotUsed  = 44
	slotMagic = 0x31676f6c6e757264
)

func (c checkpoint) slot() int64 { return int64(c.seq%2) * slotSize }

func (c checkpoint) encode() []byte {
	b := make([]byte, 0, slotSize)
	for _, v := range []uint64{slotMagic, c.seq, uint64(c.raw[stdout]), uint64(c.raw[stderr]), uint64(c.size)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))[:slotSize]
}

// decode returns the newest of the checkpoints in a file's bytes; false when none can be read.
func decode(file []byte) (checkpoint, bool) {
	var newest checkpoint
	found := false
	for i := 0; i < 2; i++ {
		at := i * slotSize
		if len(file) < at+slotUsed {
			break
		}
		b := file[at : at+slotUsed]
		word := func(n int) uint64 { return binary.LittleEndian.Uint64(b[8*n:]) }
		if word(0) != slotMagic || binary.LittleEndian.Uint32(b[40:]) != crc32.ChecksumIEEE(b[:40]) {
			continue
		}
		c := checkpoint{seq: word(1), raw: [2]int64{int64(word(2)), int64(word(3))}, size: int64(word(4))}
		if !found || c.seq > newest.seq {
			newest, found = c, true
		}
	}
	return newest, found
}
