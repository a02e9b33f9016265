package containerlog

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"podrun.io/podrun/internal/containerlog/cri"
)

// FuzzDecodeCheckpoint decodes the two slots of a checkpoint file: a valid checkpoint has no
// negative offsets and is the same after it is encoded and decoded again. With sealed, the slots
// have the right checksums.
func FuzzDecodeCheckpoint(f *testing.F) {
	first := checkpoint{seq: 4, raw: [2]int64{1, 2}, size: 3, file: 4}
	second := checkpoint{seq: 5, raw: [2]int64{10, 20}, size: 30, file: 4}
	torn := checkpoint{seq: 6, raw: [2]int64{-1, 20}, size: 30, file: 4}
	both := append(first.encode(), second.encode()...)
	f.Add(both, false)
	f.Add(both, true)
	f.Add(both[:slotSize], false)
	f.Add(both[:slotSize+17], false)
	f.Add(append(first.encode(), torn.encode()...), true)
	f.Add(append(make([]byte, slotSize), second.encode()...), true)
	f.Fuzz(func(t *testing.T, file []byte, sealed bool) {
		for at := 0; sealed && at+slotUsed <= len(file) && at <= slotSize; at += slotSize {
			size := slotData
			if binary.LittleEndian.Uint64(file[at:]) == legacyMagic {
				size = legacyData
			}
			binary.LittleEndian.PutUint32(file[at+size:], crc32.ChecksumIEEE(file[at:at+size]))
		}
		c, ok := decode(file)
		if !ok {
			return
		}
		if c.size < 0 || c.raw[cri.Stdout] < 0 || c.raw[cri.Stderr] < 0 {
			t.Errorf("a checkpoint that cannot be: %+v", c)
		}
		if back, ok := decode(append(make([]byte, c.slot()), c.encode()...)); !ok || back != c {
			t.Errorf("%+v comes back as %+v, %t", c, back, ok)
		}
	})
}
