// Package containerlog converts the output of containers into log files in CRI format, rotates
// these files and reads them.
//
// The runtime shim appends each container's output to plain files, the raw files, and needs no
// other process to read them. So a container does not block and loses no output while podrun is not
// running. A converter takes the instance's lock for one batch, continues at the instance's
// conversion position and advances it; the position is in a file beside the raw files, not in the
// pod's checkpoint. So any number of processes may convert an instance, one after the other, and a
// kill at any instruction neither loses nor repeats a line.
//
// A full log is renamed and a new one is begun; renamed logs are compressed and later removed.
// Neither the container nor the shim notices, because only the converter writes to logs.
//
// The package does not create the raw files (the runtime does) and makes no decisions about pods.
// Begin reading at Tailer, which converts, and at Read.
package containerlog
