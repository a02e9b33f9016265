package pull

import (
	"context"
	"errors"

	"github.com/distribution/reference"

	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// keyring returns the credentials for an image: those of the pod come before those of the node.
func (p *Puller) keyring(named reference.Named, logins registry.Logins) *registry.Keyring {
	return registry.NewKeyring(logins, p.o.Credentials, reference.Path(named))
}

// withEach calls do, and again with the next ones of keys as long as the registry refuses the image
// to the present ones, or these cannot be read. Registries answer "not found" too for what is
// somebody else's. If all fail, it returns the first error, unless a registry has accepted later
// credentials and has no such image.
func (p *Puller) withEach(ctx context.Context, keys *registry.Keyring, do func() error) error {
	var first error
	for {
		err := do()
		var unreadable *registry.CredentialsError
		refusal := daemon.RefusalOf(err)
		other := refusal == daemon.Denied || refusal == daemon.Missing || errors.As(err, &unreadable)
		if err == nil || ctx.Err() != nil || !other {
			return err
		}
		if first == nil || refusal == daemon.Missing && daemon.RefusalOf(first) == daemon.Denied {
			first = err
		}
		if !keys.Next() {
			return first
		}
		p.o.Log.Info("these credentials do not open the registry; the next ones are tried", "err", err)
	}
}
