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

// newKeeper creates the garbage collector, which prevents the disks from filling up.
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
		Disks: disks, Policy: h.o.Garbage, Record: h.o.Dirs.ImageFiles().Used(), Log: h.o.Log,
	})
}

// neededImages returns the images that pods may be started from: those that manifests name, and
// those loaded from archives, which may not be available anywhere else. sure is false while an
// existing manifest cannot be read.
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
	if text, err := os.ReadFile(o.Dirs.ImageFiles().Loaded()); err == nil {
		_ = json.Unmarshal(text, &known)
	}
	for _, archive := range known {
		refs = append(refs, archive.Names...)
	}
	blind := slices.ContainsFunc(want.Problems, func(p manifest.Problem) bool { return p.Blind })
	return refs, want.Complete && !blind
}
