package agent

import (
	"encoding/json"
	"os"
	"slices"

	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// newKeeper makes what keeps the disks from filling.
func (h *house) newKeeper() *gc.Keeper {
	disks := []gc.Disk{{Name: "nodefs", Path: h.o.Dirs.Root}, {Name: "logfs", Path: h.o.Dirs.Log, Logs: true}}
	root := h.conn.Driver.ImageRoot()
	if root == "" {
		disks[0].Images = true
	} else {
		disks = append(disks, gc.Disk{Name: "imagefs", Path: root, Images: true})
	}
	return gc.New(gc.Options{
		Images: h.conn.Driver, Logs: containerlog.Retired{Dirs: h.o.Dirs, Pods: h.runtime},
		Disks: disks, Policy: h.o.Garbage, Record: h.o.Dirs.UsedImages(), Log: h.o.Log,
	})
}

// neededImages are those that pods may be started from: what manifests name, and what was loaded from archives
// and might be found nowhere else. It is not sure as long as a manifest that was there cannot be read.
func (o Options) neededImages(want manifest.Desired) (refs []string, sure bool) {
	for _, p := range want.Pods {
		for _, c := range pod.AllContainers(p) {
			refs = append(refs, c.Image)
		}
		for _, v := range p.Spec.Volumes {
			if v.Image != nil {
				refs = append(refs, v.Image.Reference)
			}
		}
	}
	known := map[string]loaded{}
	if text, err := os.ReadFile(o.Dirs.LoadedImages()); err == nil {
		_ = json.Unmarshal(text, &known)
	}
	for _, archive := range known {
		refs = append(refs, archive.Names...)
	}
	blind := slices.ContainsFunc(want.Problems, func(p manifest.Problem) bool { return p.Blind })
	return refs, want.Complete && !blind
}
