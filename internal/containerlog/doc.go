// Package containerlog turns what containers wrote into logs in CRI format, and reads those.
//
// The runtime shim appends each container's output to plain files and needs nobody to read them, so a
// container never blocks and loses nothing while podrun is down. Whoever converts takes the instance's
// lock for one batch, goes on from its checkpoint and moves that; so any number of processes may, one
// after the other, and a kill at any instruction neither loses nor repeats a line.
//
// A log that is full is put away for a new one, and what was put away is compressed and at last removed;
// neither the container nor the shim notices, because only the converter writes to logs.
//
// It does not make the raw files (the runtime does), and decides nothing about pods.
package containerlog
