// Package testcsi is a CSI driver for tests, whose volumes are directories that it binds. It registers as drivers with
// a node-driver-registrar do. Like drivers that are in use, it wants to know the pod of an inline volume, leaves the
// mount of a volume as it is when it ends, and says NOT_FOUND of one that it has unpublished. csi-sanity accepts it.
//
// A test makes it answer otherwise by a file in its directory: fail-CALL contains the number of the code with which
// CALL fails, late-CALL that with which it fails after it has had its effect, and as long as there is a file hang-CALL
// the call does not return. The file calls has the names of the calls that have come, a line each, and last-CALL the
// request of the last one.
//
// Begin reading at Driver.
package testcsi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// Driver is the driver.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	csi.UnimplementedControllerServer
	registration.UnimplementedRegistrationServer
	// Name is the driver's name, and Node its name for the machine.
	Name, Node string
	// Dir is where it keeps its volumes and its socket, csi.sock.
	Dir string
	// Registry is the directory where it registers; "": it does not.
	Registry string
	// Stages makes volumes that are not inline be staged.
	Stages bool
	// Groups makes the driver give volumes to the pod's group.
	Groups bool
	// Hidden makes the driver mount nothing where the machine sees it, as one without a shared mount does.
	Hidden bool
	// Link makes the driver put a link to there in place of the directory above the target.
	Link string
	// Attaches makes the controller say that volumes must be attached.
	Attaches bool

	mu sync.Mutex // one call at a time changes mounts
}

// Seen is what the driver was told when it published an inline volume. It is the file seen.json in that.
type Seen struct {
	ID       string            `json:"id"`
	Context  map[string]string `json:"context"`
	Secrets  map[string]string `json:"secrets,omitempty"`
	ReadOnly bool              `json:"readOnly"`
	FSType   string            `json:"fsType"`
	Group    string            `json:"group"`
	Mode     string            `json:"mode"`
	// Times is how often it was published.
	Times int `json:"times"`
}

// Serve serves the driver until ctx ends.
func (d *Driver) Serve(ctx context.Context) error {
	if err := os.MkdirAll(d.Dir, layout.ModePlugins); err != nil {
		return err
	}
	sockets := []string{filepath.Join(d.Dir, "csi.sock")}
	if d.Registry != "" {
		sockets = append(sockets, filepath.Join(d.Registry, d.Name+"-reg.sock"))
	}
	var running sync.WaitGroup
	var servers []*grpc.Server
	defer func() {
		for _, s := range servers {
			s.Stop()
		}
		running.Wait()
	}()
	for i, at := range sockets {
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l, err := net.Listen("unix", at)
		if err != nil {
			return err
		}
		s := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
		if i == 0 {
			csi.RegisterIdentityServer(s, d)
			csi.RegisterNodeServer(s, d)
			csi.RegisterControllerServer(s, d)
		} else {
			registration.RegisterRegistrationServer(s, d)
		}
		servers = append(servers, s)
		running.Go(func() { _ = s.Serve(l) })
	}
	<-ctx.Done()
	return ctx.Err()
}

// intercept does to a call what a test wants.
func (d *Driver) intercept(ctx context.Context, r any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	call := path.Base(info.FullMethod)
	for ctx.Err() == nil {
		if _, err := os.Stat(filepath.Join(d.Dir, "hang-"+call)); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := d.failure("fail-" + call); err != nil {
		return nil, err
	}
	if err := d.remember(call, r); err != nil {
		return nil, err
	}
	answer, err := h(ctx, r)
	if late := d.failure("late-" + call); err == nil && late != nil {
		return nil, late
	}
	return answer, err
}

// failure returns the error whose code is in a file; nil if there is none.
func (d *Driver) failure(file string) error {
	text, err := os.ReadFile(filepath.Join(d.Dir, file))
	if err != nil {
		return nil
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return status.Error(codes.Code(code), "as the test wants")
}

// remember writes down that a call came, and with what.
func (d *Driver) remember(call string, r any) error {
	m, is := r.(proto.Message)
	if !is || !strings.HasPrefix(call, "Node") && !strings.HasSuffix(call, "teVolume") {
		return nil
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := sys.WriteFile(d.Path("last-"+call), text, 0o600); err != nil {
		return err
	}
	calls, err := os.OpenFile(d.Path("calls"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer calls.Close()
	_, err = calls.WriteString(call + "\n")
	return err
}

// Calls returns how often a call has come that was not to fail.
func (d *Driver) Calls(call string) int {
	text, err := os.ReadFile(d.Path("calls"))
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if line == call+"\n" {
			n++
		}
	}
	return n
}

// GetInfo implements registration.RegistrationServer.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: d.Name, Endpoint: filepath.Join(d.Dir, "csi.sock"),
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer. A driver that is refused gives up.
func (d *Driver) NotifyRegistrationStatus(
	_ context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		return nil, os.WriteFile(filepath.Join(d.Dir, "refused"), []byte(s.Error), 0o600)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo implements csi.IdentityServer.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.Name, VendorVersion: "1"}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (d *Driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	service := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: service}},
	}}, nil
}

// Probe implements csi.IdentityServer.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// NodeGetInfo implements csi.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.Node}, nil
}

// NodeGetCapabilities implements csi.NodeServer.
func (d *Driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	all := []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_GET_VOLUME_STATS}
	if d.Stages {
		all = append(all, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	if d.Groups {
		all = append(all, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range all {
		rpc := &csi.NodeServiceCapability_RPC{Type: t}
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: rpc},
		})
	}
	return out, nil
}

// missing returns the error that one of the fields of a call is not there.
func missing(fields ...bool) error {
	for _, there := range fields {
		if !there {
			return status.Error(codes.InvalidArgument, "a field is missing")
		}
	}
	return nil
}

// VolumeDir returns the directory of a volume. An ID is any string.
func (d *Driver) VolumeDir(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(d.Dir, "volumes", hex.EncodeToString(sum[:]))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// bind mounts a volume, unless it is mounted.
func bind(from, to string, readOnly bool) error {
	if err := os.MkdirAll(to, layout.ModePlugins); err != nil {
		return err
	}
	if mounted, err := mountinfo.Mounted(to); err != nil || mounted {
		return err
	}
	if err := sys.BindOne(from, to); err != nil || !readOnly {
		return err
	}
	return sys.RemountReadOnly(to, sys.AllowExec)
}

// unbind unmounts a volume, if it is mounted, and removes what it was mounted on.
func unbind(at string) error {
	if err := sys.Unmount(at); err != nil && !errors.Is(err, sys.ErrNotMounted) {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// NodePublishVolume implements csi.NodeServer.
func (d *Driver) NodePublishVolume(
	_ context.Context, r *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	if err := missing(r.GetVolumeId() != "", r.GetTargetPath() != "", r.GetVolumeCapability() != nil); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	from := d.VolumeDir(r.GetVolumeId())
	if r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" {
		if r.GetVolumeContext()["csi.storage.k8s.io/pod.name"] == "" {
			return nil, status.Error(codes.InvalidArgument, "the pod is not named")
		}
		if err := d.fill(from, r); err != nil {
			return nil, err
		}
	}
	if !exists(from) {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	if d.Stages && r.GetStagingTargetPath() != "" {
		from = r.GetStagingTargetPath()
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodePublishVolumeResponse{}, loops{d.Dir}.publish(d.VolumeDir(r.GetVolumeId()), r.GetTargetPath())
	}
	if d.Link != "" {
		above := filepath.Dir(r.GetTargetPath())
		made := os.MkdirAll(filepath.Join(d.Link, "mount"), layout.ModeContent)
		return &csi.NodePublishVolumeResponse{}, errors.Join(made, os.RemoveAll(above), os.Symlink(d.Link, above))
	}
	if d.Hidden {
		return &csi.NodePublishVolumeResponse{}, os.MkdirAll(r.GetTargetPath(), layout.ModeContent)
	}
	return &csi.NodePublishVolumeResponse{}, bind(from, r.GetTargetPath(), r.GetReadonly())
}

// fill makes an inline volume.
func (d *Driver) fill(dir string, r *csi.NodePublishVolumeRequest) error {
	if err := os.MkdirAll(dir, layout.ModeContent); err != nil {
		return err
	}
	at := filepath.Join(dir, "seen.json")
	var before Seen
	if text, err := os.ReadFile(at); err == nil {
		if err := json.Unmarshal(text, &before); err != nil {
			return err
		}
	}
	mount := r.GetVolumeCapability().GetMount()
	text, err := json.Marshal(Seen{
		ID: r.GetVolumeId(), Context: r.GetVolumeContext(), Secrets: r.GetSecrets(), ReadOnly: r.GetReadonly(),
		FSType: mount.GetFsType(), Group: mount.GetVolumeMountGroup(),
		Mode: r.GetVolumeCapability().GetAccessMode().GetMode().String(), Times: before.Times + 1,
	})
	if err != nil {
		return err
	}
	return sys.WriteFile(at, text, 0o644)
}

// NodeUnpublishVolume implements csi.NodeServer.
func (d *Driver) NodeUnpublishVolume(
	_ context.Context, r *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := missing(r.GetVolumeId() != "", r.GetTargetPath() != ""); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := d.VolumeDir(r.GetVolumeId())
	if !exists(dir) {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	if err := unbind(r.GetTargetPath()); err != nil {
		return nil, err
	}
	if !d.Stages {
		if err := (loops{d.Dir}).detach(dir); err != nil {
			return nil, err
		}
	}
	if exists(filepath.Join(dir, "seen.json")) { // inline: it ends with its pod
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeStageVolume implements csi.NodeServer.
func (d *Driver) NodeStageVolume(
	_ context.Context, r *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	err := missing(r.GetVolumeId() != "", r.GetStagingTargetPath() != "", r.GetVolumeCapability() != nil)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !exists(d.VolumeDir(r.GetVolumeId())) {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		_, err := loops{d.Dir}.attach(d.VolumeDir(r.GetVolumeId()))
		return &csi.NodeStageVolumeResponse{}, err
	}
	return &csi.NodeStageVolumeResponse{}, bind(d.VolumeDir(r.GetVolumeId()), r.GetStagingTargetPath(), false)
}

// NodeUnstageVolume implements csi.NodeServer. Unlike a published volume's, its directory is not the driver's.
func (d *Driver) NodeUnstageVolume(
	_ context.Context, r *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	if err := missing(r.GetVolumeId() != "", r.GetStagingTargetPath() != ""); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := sys.Unmount(r.GetStagingTargetPath()); err != nil && !errors.Is(err, sys.ErrNotMounted) {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, loops{d.Dir}.detach(d.VolumeDir(r.GetVolumeId()))
}

// NodeGetVolumeStats implements csi.NodeServer.
func (d *Driver) NodeGetVolumeStats(
	_ context.Context, r *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := missing(r.GetVolumeId() != "", r.GetVolumePath() != ""); err != nil {
		return nil, err
	}
	if !exists(d.VolumeDir(r.GetVolumeId())) || !exists(r.GetVolumePath()) {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: 1 << 30, Used: 1 << 20, Available: 1<<30 - 1<<20}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes}}, nil
}
