package history

import (
	"math/bits"
	"time"
)

// buffer has the samples of one series, in some 1.5 KB. The sample with the number n is at n modulo Kept.
type buffer struct {
	cpu, memory [Kept]code
	last        int64 // the number of the newest sample
	before      total // of the newest sample
}

// total is how much CPU time has been used, in nanoseconds, until a time.
type total struct {
	nanoseconds uint64
	at          time.Time
}

// put adds sample number n. Those between it and the one before are missing.
func (r *buffer) put(n int64, now total, memory uint64) {
	if n < r.last { // the clock was set back
		*r = buffer{last: n - Kept}
	}
	for i := max(r.last+1, n-Kept+1); i <= n; i++ {
		r.cpu[i%Kept], r.memory[i%Kept] = 0, 0
	}
	over := now.at.Sub(r.before.at)
	if r.before.at.IsZero() || now.nanoseconds < r.before.nanoseconds || over <= 0 || over > 3*Every {
		r.cpu[n%Kept] = 0 // what was used since the sample before says nothing
	} else {
		r.cpu[n%Kept] = encode(uint64(float64(now.nanoseconds-r.before.nanoseconds) / over.Seconds() / 1e3))
	}
	r.memory[n%Kept] = encode(memory >> 10)
	r.last, r.before = n, now
}

// series returns the samples until that with the number newest, without the missing ones before the first.
func (r *buffer) series(of Of, newest int64) Series {
	out := Series{Of: of, CPU: []float64{}, Memory: []float64{}}
	for n := newest - Kept + 1; n <= newest; n++ {
		cpu, memory := code(0), code(0)
		if n <= r.last && n > r.last-Kept && n >= 0 {
			cpu, memory = r.cpu[n%Kept], r.memory[n%Kept]
		}
		if len(out.CPU) == 0 && cpu == 0 && memory == 0 {
			continue
		}
		out.CPU = append(out.CPU, cpu.value()/1e3) // millionths of a processor
		out.Memory = append(out.Memory, memory.value()*(1<<10))
	}
	return out
}

// code is a number of which the 11 most significant bits are kept, which is one part in a thousand; 0 is none.
type code uint16

// fraction is the number of bits of a code that are not its exponent.
const fraction = 10

func encode(v uint64) code {
	exponent := uint64(0)
	if n := bits.Len64(v); n > fraction {
		shift := n - fraction - 1
		exponent, v = uint64(shift+1), v>>shift&(1<<fraction-1)
	}
	return code(min(exponent<<fraction|v, 1<<16-2) + 1)
}

// value returns the number; negative if there is none.
func (c code) value() float64 {
	if c == 0 {
		return -1
	}
	v := uint64(c - 1)
	if exponent := v >> fraction; exponent > 0 {
		return float64((v&(1<<fraction-1) | 1<<fraction) << (exponent - 1))
	}
	return float64(v)
}
