package csi

import (
	"reflect"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// TestWire: the messages are those of the specification's own package.
func TestWire(t *testing.T) {
	t.Parallel()
	for _, mode := range []accessMode{modeSingleNodeWriter, modeSingleNodeMultiWriter} {
		p := publication{
			id: "id", target: "/target", fsType: "ext4", group: "1000", mode: mode, readOnly: true,
			secrets: map[string]string{"k": "v", "empty": ""}, context: map[string]string{"a": "b", "c": "d"},
		}
		want := &csi.NodePublishVolumeRequest{
			VolumeId: "id", TargetPath: "/target", Readonly: true, Secrets: p.secrets, VolumeContext: p.context,
			VolumeCapability: &csi.VolumeCapability{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4", VolumeMountGroup: "1000"}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: map[accessMode]csi.VolumeCapability_AccessMode_Mode{
					modeSingleNodeWriter:      csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
					modeSingleNodeMultiWriter: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
				}[mode]},
			},
		}
		var got csi.NodePublishVolumeRequest
		if err := proto.Unmarshal(p.encode(), &got); err != nil || !proto.Equal(&got, want) {
			t.Errorf("%v, %v; want %v", &got, err, want)
		}
	}
	s := publication{
		id: "id", staging: "/staging", fsType: "ext4", group: "1000", flags: []string{"noatime", ""}, mode: modeSingleNodeSingleWriter,
		secrets: map[string]string{"k": "v"}, context: map[string]string{"a": "b"},
	}
	var stage csi.NodeStageVolumeRequest
	if err := proto.Unmarshal(s.encodeStage(), &stage); err != nil || !proto.Equal(&stage, &csi.NodeStageVolumeRequest{
		VolumeId: "id", StagingTargetPath: "/staging", Secrets: s.secrets, VolumeContext: s.context,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
				FsType: "ext4", VolumeMountGroup: "1000", MountFlags: s.flags,
			}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		},
	}) {
		t.Errorf("%v, %v", &stage, err)
	}
	var empty csi.NodePublishVolumeRequest
	if err := proto.Unmarshal(publication{}.encode(), &empty); err != nil || empty.GetVolumeCapability().GetMount() == nil {
		t.Errorf("%v, %v", &empty, err)
	}
	var gone csi.NodeUnpublishVolumeRequest
	if err := proto.Unmarshal(unpublication("id", "/t"), &gone); err != nil || gone.GetVolumeId() != "id" || gone.GetTargetPath() != "/t" {
		t.Errorf("%v, %v", &gone, err)
	}
	info, err := proto.Marshal(&csi.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 7, AccessibleTopology: &csi.Topology{Segments: map[string]string{"a": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := message(info).nodeID(); err != nil || id != "n" {
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
	if can, err := message(text).capabilities(); err != nil || !reflect.DeepEqual(can, map[capability]bool{volumeMountGroup: true, singleNodeMultiWriter: true}) {
		t.Errorf("%v, %v", can, err)
	}
}

// TestAccessModes: what a driver is told of the first access mode, without and with the modes of one machine.
func TestAccessModes(t *testing.T) {
	t.Parallel()
	without, with := &driver{}, &driver{can: map[capability]bool{singleNodeMultiWriter: true}}
	for mode, want := range map[v1.PersistentVolumeAccessMode][2]csi.VolumeCapability_AccessMode_Mode{
		v1.ReadWriteOnce:    {csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		v1.ReadOnlyMany:     {csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		v1.ReadWriteMany:    {csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		v1.ReadWriteOncePod: {csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
	} {
		p := &Persistent{Modes: []v1.PersistentVolumeAccessMode{mode, v1.ReadWriteMany}}
		for i, d := range []*driver{without, with} {
			if got := csi.VolumeCapability_AccessMode_Mode(p.mode(d)); got != want[i] {
				t.Errorf("%s: %v, want %v", mode, got, want[i])
			}
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	text, err := proto.Marshal(&csi.NodeGetVolumeStatsResponse{
		Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Available: 1, Total: 3, Used: 2}, {Unit: csi.VolumeUsage_INODES, Available: 4, Total: 9, Used: 5},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	fs, used, err := message(text).usage()
	if err != nil || fs != (sys.FS{Available: 1, Capacity: 3, FilesFree: 4, Files: 9}) || used != (pod.Space{Bytes: 2, Files: 5}) {
		t.Errorf("%+v, %+v, %v", fs, used, err)
	}
}

// FuzzMessages: what a driver answers is read without a panic, as the specification's package reads it.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{10, 1, 'n'})
	f.Add([]byte{10, 4, 10, 2, 8, 6})
	f.Fuzz(func(t *testing.T, text []byte) {
		var info csi.NodeGetInfoResponse
		if id, err := message(text).nodeID(); proto.Unmarshal(text, &info) == nil && (err != nil || id != info.GetNodeId()) {
			t.Errorf("%q, %v; want %q", id, err, info.GetNodeId())
		}
		_, _ = message(text).capabilities()
		_, _, _ = message(text).usage()
	})
}

// TestUnpublishIsForReleasedVolumes: by the time of a call the pod may be back, and have the volume again.
func TestUnpublishIsForReleasedVolumes(t *testing.T) {
	t.Parallel()
	d := New(Options{Dirs: layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}})
	r := Record{Driver: "d", UID: "u1", Volume: "v", ID: "id", Target: "/none", Socket: "/none"}
	if _, err := d.records.create(r); err != nil {
		t.Fatal(err)
	}
	if err := d.unpublish(t.Context(), r); err != nil {
		t.Errorf("its driver is called: %v", err)
	}
	if err := d.records.update(r, func(r *Record) { r.Released = true }); err != nil {
		t.Fatal(err)
	}
	if err := d.unpublish(t.Context(), r); err == nil {
		t.Error("the driver of a released volume is not called")
	}
}
