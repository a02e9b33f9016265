package containerlog

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
	// file is the inode of the log that size is of, wherever it was moved since; 0: not known, as in a checkpoint of a
	// former version, or there is none.
	file uint64
}

// A checkpoint is written in place, into the two slots in turn, each with its checksum: a torn write
// leaves the other. Unlike a rename that needs no free block, so a full disk cannot hold it up, and the
// file's identity stays for the lock that is taken on it.
const (
	slotSize  = 64
	slotMagic = 0x32676f6c6e757264
	slotUsed  = slotData + 4
	slotData  = 48
	// The former version's has no file.
	legacyMagic = 0x31676f6c6e757264
	legacyData  = 40
)

func (c checkpoint) slot() int64 { return int64(c.seq%2) * slotSize }

func (c checkpoint) encode() []byte {
	b := make([]byte, 0, slotSize)
	for _, v := range []uint64{slotMagic, c.seq, uint64(c.raw[stdout]), uint64(c.raw[stderr]), uint64(c.size), c.file} {
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
		if len(file) < at {
			break
		}
		if c, ok := decodeSlot(file[at:]); ok && (!found || c.seq > newest.seq) {
			newest, found = c, true
		}
	}
	return newest, found
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
	return c, c.sane()
}

// sane reports offsets that files can have.
func (c checkpoint) sane() bool { return min(c.raw[stdout], c.raw[stderr], c.size) >= 0 }
