package testcsi

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// ControllerGetCapabilities implements csi.ControllerServer.
func (d *Driver) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	all := []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
	if d.Attaches {
		all = append(all, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	out := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range all {
		rpc := &csi.ControllerServiceCapability_RPC{Type: t}
		out.Capabilities = append(out.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc},
		})
	}
	return out, nil
}

// CreateVolume implements csi.ControllerServer. The name of a volume is its ID.
func (d *Driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := missing(r.GetName() != "", len(r.GetVolumeCapabilities()) > 0); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, size := d.VolumeDir(r.GetName()), strconv.FormatInt(r.GetCapacityRange().GetRequiredBytes(), 10)
	if of, err := os.ReadFile(dir + ".size"); err == nil && string(of) != size {
		return nil, status.Error(codes.AlreadyExists, "it has another size")
	}
	if err := os.MkdirAll(dir, layout.ModeContent); err != nil {
		return nil, err
	}
	if err := os.WriteFile(dir+".size", []byte(size), 0o600); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: r.GetName(), CapacityBytes: r.GetCapacityRange().GetRequiredBytes(), VolumeContext: r.GetParameters(),
	}}, nil
}

// DeleteVolume implements csi.ControllerServer.
func (d *Driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := missing(r.GetVolumeId() != ""); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range []string{d.VolumeDir(r.GetVolumeId()), d.VolumeDir(r.GetVolumeId()) + ".size"} {
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (d *Driver) ValidateVolumeCapabilities(
	_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := missing(r.GetVolumeId() != "", len(r.GetVolumeCapabilities()) > 0); err != nil {
		return nil, err
	}
	if !exists(d.VolumeDir(r.GetVolumeId())) {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: r.GetVolumeCapabilities(),
	}}, nil
}

// Path returns where the file of a test is that changes what the driver answers.
func (d *Driver) Path(name string) string { return filepath.Join(d.Dir, name) }
