package embedded

import (
	"errors"

	coretransfer "github.com/containerd/containerd/v2/core/transfer"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"podrun.io/podrun/internal/embedded/transfer"
)

// limitTransfers replaces containerd's transfer service by one with limits, in the list of all plugins.
func limitTransfers() {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for _, r := range all {
		if r.Type == plugins.TransferPlugin {
			start := r.InitFn
			r.InitFn = func(ic *plugin.InitContext) (any, error) {
				made, err := start(ic)
				if err != nil {
					return nil, err
				}
				service, ok := made.(coretransfer.Transferrer)
				if !ok {
					return nil, errors.New("containerd's transfer service is none")
				}
				return transfer.Limit(service), nil
			}
		}
		registry.Register(&r)
	}
}
