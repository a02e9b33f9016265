package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podrun.io/podrun/internal/sys/socket"
	"podrun.io/podrun/internal/volume/csi/wire"
)

// createDeleteVolume is the ControllerServiceCapability.RPC.Type of a driver that makes volumes.
const createDeleteVolume wire.Capability = 1

// Creation asks for a volume that a driver makes.
type Creation struct {
	// Request is of the pod for which it is made. Its Persistent volume has no Handle yet; its attributes are the
	// parameters of the volume's class, and its Secrets for the driver's controller.
	Request Request
	// Key is the same for whoever wants the same volume.
	Key string
	// Smallest and Largest are its size in bytes; 0: any.
	Smallest, Largest int64
	// Volume records that the driver is about to be asked, and returns what the volume is called: of a name a driver
	// makes one volume, also after an error.
	Volume func() (name string, err error)
	// Made records the volume.
	Made func(Created) error
}

// Created is a volume that a driver has made.
type Created struct {
	Handle  string
	Context map[string]string
	// Socket is where the driver was, and Size what it says that the volume has, in bytes; 0 if it does not say.
	Socket string
	Size   int64
}

// By makes the driver make the volume. There is one call at a time for a key. An error may be temporary.
func (c Creation) By(ctx context.Context, d *Drivers) error {
	if err := c.Request.refused(); err != nil {
		return err
	}
	with, err := d.driver(c.Request.Source.Driver)
	if err != nil {
		return err
	}
	// The record names the call; it is not on disk.
	call := Record{Driver: c.Request.Source.Driver, UID: "creation", PersistentVolume: c.Key, Volume: c.Request.Volume}
	return d.do(ctx, call, creating, func(ctx context.Context, _ Record) error { return c.call(ctx, with, d.o.Log) })
}

func (c Creation) call(ctx context.Context, with *driver, log *slog.Logger) error {
	r := c.Request
	if err := r.attached(ctx, with); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := wire.Invoke(ctx, with.conn, "Controller/ControllerGetCapabilities", nil)
	if err != nil && status.Code(err) != codes.Unimplemented {
		return failed(r.Source.Driver, "ControllerGetCapabilities", err)
	}
	can, malformed := answer.Capabilities()
	if err != nil || malformed != nil || !can[createDeleteVolume] {
		return fmt.Errorf("the CSI driver %s makes no volumes at the socket where it has registered: it has no controller "+
			"there with CREATE_DELETE_VOLUME", r.Source.Driver)
	}
	name, err := c.Volume()
	if err != nil {
		return err
	}
	answer, err = wire.Invoke(ctx, with.conn, "Controller/CreateVolume", c.message(with, name))
	var volume wire.Volume
	if err == nil {
		volume, err = answer.Volume()
	}
	made := Created{Handle: volume.Handle, Context: volume.Context, Socket: with.endpoint, Size: volume.Size}
	if err == nil && made.Size > 0 && made.Size < c.Smallest {
		err = fmt.Errorf("the driver's volume %q has %d bytes, and the claim requests %d", made.Handle, made.Size, c.Smallest)
	}
	if err != nil {
		return failed(r.Source.Driver, "CreateVolume", err)
	}
	if err = c.Made(made); err != nil {
		log.Warn("a CSI driver has made a volume that is not recorded", "driver", r.Source.Driver, "volume", made.Handle, "err", err)
	}
	return err
}

// message returns the CreateVolumeRequest.
func (c Creation) message(with *driver, name string) wire.Message {
	p := c.Request.publication(with, Record{})
	p.Group = "" // it is of the pod, and the volume of others too
	size := wire.Message(nil).Number(1, uint64(c.Smallest)).Number(2, uint64(c.Largest))
	m := wire.Message(nil).Text(1, name).Within(2, size)
	for _, mode := range c.Request.Persistent.Modes {
		p.Mode = modeOf(mode, with)
		m = m.Within(3, p.Capability())
	}
	return m.Pairs(4, c.Request.Source.VolumeAttributes).Pairs(5, c.Request.Secrets)
}

// Refused reports that a driver has not done what it was asked for, and has had its last word.
func Refused(err error) bool {
	_, is := status.FromError(err)
	return err != nil && is && !uncertain(err)
}

// Delete makes the driver at a socket delete a volume. It succeeds if there is no such volume any more.
func Delete(ctx context.Context, at, driver, handle string, secrets map[string]string) error {
	conn, err := socket.Client(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := wire.Invoke(ctx, conn, "Identity/GetPluginInfo", nil)
	if err != nil {
		return failed(driver, "GetPluginInfo", err)
	}
	if name, err := answer.NodeID(); err != nil || name != driver { // the name is the same field
		return errors.Join(err, fmt.Errorf("at %s is the driver %q, and not %s", at, name, driver))
	}
	_, err = wire.Invoke(ctx, conn, "Controller/DeleteVolume", wire.Message(nil).Text(1, handle).Pairs(2, secrets))
	if err != nil && status.Code(err) != codes.NotFound {
		return failed(driver, "DeleteVolume", err)
	}
	return nil
}
