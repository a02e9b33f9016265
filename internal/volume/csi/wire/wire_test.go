package wire

import (
	"reflect"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// TestWire: the messages are those of the specification's own package.
func TestWire(t *testing.T) {
	t.Parallel()
	for _, mode := range []AccessMode{ModeSingleNodeWriter, ModeSingleNodeMultiWriter} {
		p := Publication{
			ID: "id", Target: "/target", FSType: "ext4", Group: "1000", Mode: mode, ReadOnly: true,
			Secrets: map[string]string{"k": "v", "empty": ""}, Context: map[string]string{"a": "b", "c": "d"},
		}
		want := &csi.NodePublishVolumeRequest{
			VolumeId: "id", TargetPath: "/target", Readonly: true, Secrets: p.Secrets, VolumeContext: p.Context,
			VolumeCapability: &csi.VolumeCapability{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4", VolumeMountGroup: "1000"}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: map[AccessMode]csi.VolumeCapability_AccessMode_Mode{
					ModeSingleNodeWriter:      csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
					ModeSingleNodeMultiWriter: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
				}[mode]},
			},
		}
		var got csi.NodePublishVolumeRequest
		if err := proto.Unmarshal(p.Encode(), &got); err != nil || !proto.Equal(&got, want) {
			t.Errorf("%v, %v; want %v", &got, err, want)
		}
	}
	s := Publication{
		ID: "id", Staging: "/staging", FSType: "ext4", Group: "1000", Flags: []string{"noatime", ""}, Mode: ModeSingleNodeSingleWriter,
		Secrets: map[string]string{"k": "v"}, Context: map[string]string{"a": "b"},
	}
	var stage csi.NodeStageVolumeRequest
	if err := proto.Unmarshal(s.EncodeStage(), &stage); err != nil || !proto.Equal(&stage, &csi.NodeStageVolumeRequest{
		VolumeId: "id", StagingTargetPath: "/staging", Secrets: s.Secrets, VolumeContext: s.Context,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
				FsType: "ext4", VolumeMountGroup: "1000", MountFlags: s.Flags,
			}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		},
	}) {
		t.Errorf("%v, %v", &stage, err)
	}
	var empty csi.NodePublishVolumeRequest
	if err := proto.Unmarshal(Publication{}.Encode(), &empty); err != nil || empty.GetVolumeCapability().GetMount() == nil {
		t.Errorf("%v, %v", &empty, err)
	}
	var gone csi.NodeUnpublishVolumeRequest
	if err := proto.Unmarshal(Unpublication("id", "/t"), &gone); err != nil || gone.GetVolumeId() != "id" || gone.GetTargetPath() != "/t" {
		t.Errorf("%v, %v", &gone, err)
	}
	info, err := proto.Marshal(&csi.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 7, AccessibleTopology: &csi.Topology{Segments: map[string]string{"a": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := Message(info).NodeID(); err != nil || id != "n" {
		t.Errorf("%q, %v", id, err)
	}
	all := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER} {
		all.Capabilities = append(all.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	text, err := proto.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if can, err := Message(text).Capabilities(); err != nil || !reflect.DeepEqual(can, map[Capability]bool{VolumeMountGroup: true, SingleNodeMultiWriter: true}) {
		t.Errorf("%v, %v", can, err)
	}
}
