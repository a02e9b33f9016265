package csi

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/csi/wire"
)

// TestAccessModes: what a driver is told of the first access mode, without and with the modes of one machine.
func TestAccessModes(t *testing.T) {
	t.Parallel()
	without, with := &driver{}, &driver{can: map[wire.Capability]bool{wire.SingleNodeMultiWriter: true}}
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
	fs, used, err := usage(text)
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
		if id, err := wire.Message(text).NodeID(); proto.Unmarshal(text, &info) == nil && (err != nil || id != info.GetNodeId()) {
			t.Errorf("%q, %v; want %q", id, err, info.GetNodeId())
		}
		_, _ = wire.Message(text).Capabilities()
		_, _, _ = usage(text)
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
