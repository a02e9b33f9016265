package csi

import (
	"context"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/csi/wire"
)

// getVolumeStats is the capability to measure volumes.
const getVolumeStats wire.Capability = 2

// ErrNoStats is that a driver does not measure the volume, or cannot now.
var ErrNoStats = errors.New("no statistics of the volume")

// Usage asks the driver of a pod's volume how large that is and how much of it is in use. What the driver does
// not say is 0.
func (d *Drivers) Usage(ctx context.Context, uid pod.UID, volume string) (fs sys.FS, used pod.Space, err error) {
	r, found, err := d.records.read(Record{UID: uid, Volume: volume})
	if err == nil && !found {
		r, found, err = d.records.persistent(uid, func(r Record) bool { return r.Volume == volume })
	}
	if err != nil {
		return fs, used, err
	}
	with := d.registered(r.Driver)
	if !found || !r.Published || r.Released || with == nil || !with.can[getVolumeStats] {
		return fs, used, ErrNoStats
	}
	answer, err := wire.Invoke(ctx, with.conn, "NodeGetVolumeStats", wire.Message(nil).Text(1, r.ID).Text(2, r.Target))
	if err != nil {
		return fs, used, failed(r.Driver, "NodeGetVolumeStats", err)
	}
	return usage(answer)
}

// usage reads a NodeGetVolumeStatsResponse.
func usage(m wire.Message) (fs sys.FS, used pod.Space, err error) {
	const inBytes, inInodes = 1, 2 // VolumeUsage.Unit
	var errs []error
	errs = append(errs, m.Each(func(n protowire.Number, _ uint64, one wire.Message) {
		if n != 1 {
			return
		}
		var of [5]uint64 // available, total, used and unit, by the numbers of the fields
		errs = append(errs, one.Each(func(n protowire.Number, v uint64, _ wire.Message) {
			if int(n) < len(of) {
				of[n] = v
			}
		}))
		switch of[4] {
		case inBytes:
			fs.Available, fs.Capacity, used.Bytes = of[1], of[2], int64(of[3])
		case inInodes:
			fs.FilesFree, fs.Files, used.Files = of[1], of[2], int64(of[3])
		}
	}))
	return fs, used, errors.Join(errs...)
}
