package containerlog

import (
	"encoding/binary"
	"hash/crc32"

	"podrun.io/podrun/internal/containerlog/cri"
)

// checkpoint records how far the conversion of an instance is. The raw files up to the offsets raw
// are in the first size bytes of the log; what the log has beyond size was not finished and is cut
// off.
type checkpoint struct {
	seq  uint64
	raw  [2]int64
	size int64
	// file is the inode of the log that size refers to, even if that log was renamed since; 0:
	// unknown, as in a checkpoint of the former version, or there is no log.
	file uint64
}

// A checkpoint is written in place, alternately into two slots, each with its checksum: a torn
// write leaves the other slot intact. Unlike a rename, this needs no free block, so it works on a
// full disk; and the file remains the same inode, which the lock on it requires.
const (
	slotSize  = 64
	slotMagic = 0x32676f6c6e757264
	slotUsed  = slotData + 4
	slotData  = 48
	// Checkpoints of the former version have no file field.
	legacyMagic = 0x31676f6c6e757264
	legacyData  = 40
)

func (c checkpoint) slot() int64 { return int64(c.seq%2) * slotSize }

func (c checkpoint) encode() []byte {
	b := make([]byte, 0, slotSize)
	out, errOut := uint64(c.raw[cri.Stdout]), uint64(c.raw[cri.Stderr])
	for _, v := range []uint64{slotMagic, c.seq, out, errOut, uint64(c.size), c.file} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))[:slotSize]
}

// decode returns the newest checkpoint in the bytes of a checkpoint file; false if neither slot is
// valid.
func decode(file []byte) (checkpoint, bool) {
	var newest checkpoint
	valid := false
	for i := 0; i < 2; i++ {
		at := i * slotSize
		if len(file) < at {
			break
		}
		if c, ok := decodeSlot(file[at:]); ok && (!valid || c.seq > newest.seq) {
			newest, valid = c, true
		}
	}
	return newest, valid
}

func decodeSlot(b []byte) (c checkpoint, ok bool) {
	if len(b) < legacyData+4 {
		return c, false
	}
	word := func(n int) uint64 { return binary.LittleEndian.Uint64(b[8*n:]) }
	size := legacyData
	if word(0) == slotMagic {
		size = slotData
	} else if word(0) != legacyMagic {
		return c, false
	}
	if len(b) < size+4 || binary.LittleEndian.Uint32(b[size:]) != crc32.ChecksumIEEE(b[:size]) {
		return c, false
	}
	c = checkpoint{seq: word(1), raw: [2]int64{int64(word(2)), int64(word(3))}, size: int64(word(4))}
	if size == slotData {
		c.file = word(5)
	}
	return c, c.valid()
}

// valid reports whether no offset is negative.
func (c checkpoint) valid() bool { return min(c.raw[cri.Stdout], c.raw[cri.Stderr], c.size) >= 0 }
