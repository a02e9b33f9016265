package images

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distribution/reference"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/workload/revisions"
)

// The bounds of what registries may take in one check.
const (
	askTime      = time.Minute
	pullTime     = 15 * time.Minute
	hostTime     = 30 * time.Minute // all requests to a host
	workloadTime = 30 * time.Minute // all requests for a workload, which may name many hosts
	checkTime    = 6 * time.Hour    // after this, no request begins
	atOnce       = 8                // requests
	atOnceToHost = 2
)

// registries makes the requests of one check. A host that does not answer in time is not asked again, and who waits for
// a host occupies nothing that requests to others need.
type registries struct {
	images runtime.Images
	until  time.Time
	slots  chan struct{} // atOnce

	mu      sync.Mutex
	hosts   map[string]*host
	answers map[string]*answer
}

// host is a registry.
type host struct {
	slots chan struct{} // atOnceToHost

	mu   sync.Mutex
	left time.Duration
}

// answer is what a registry answered about an image, for the same credentials.
type answer struct {
	once   sync.Once
	digest string
	err    error
}

func newRegistries(images runtime.Images) *registries {
	return &registries{
		images: images, until: time.Now().Add(checkTime), slots: make(chan struct{}, atOnce),
		hosts: map[string]*host{}, answers: map[string]*answer{},
	}
}

// client makes the requests for one workload, one after the other.
type client struct {
	*registries
	logins [][]byte
	left   time.Duration
}

func (r *registries) client(logins [][]byte) *client {
	return &client{registries: r, logins: logins, left: workloadTime}
}

// digest returns what a registry has under the name ref. It is asked once for the same credentials.
func (c *client) digest(ctx context.Context, ref string) (string, error) {
	if c.left <= 0 { // not part of an answer, which is one for others too
		return "", errors.New("the registries of this pod's images take too long; those of this one are not asked this time")
	}
	key := fmt.Sprintf("%s %q", ref, c.logins)
	c.mu.Lock()
	shared := c.answers[key]
	if shared == nil {
		shared = &answer{}
		c.answers[key] = shared
	}
	c.mu.Unlock()
	shared.once.Do(func() {
		shared.err = c.request(ctx, ref, askTime, func(ctx context.Context) (err error) {
			shared.digest, err = c.images.RegistryDigest(ctx, ref, c.logins...)
			return err
		})
	})
	return shared.digest, shared.err
}

// pull fetches the image of a digest.
func (c *client) pull(ctx context.Context, ref, digest string) error {
	return c.request(ctx, ref, pullTime, func(ctx context.Context) error {
		_, err := c.images.Pull(ctx, revisions.Pinned(ref, digest), c.logins...)
		return err
	})
}

// request makes a request to the registry of an image, which may take as long as limit.
func (c *client) request(
	ctx context.Context, ref string, limit time.Duration, do func(context.Context) error,
) error {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return err
	}
	name := reference.Domain(named)
	h := c.host(name)
	for _, slots := range []chan struct{}{h.slots, c.slots} { // in this order: see registries
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	began := time.Now()
	if !began.Before(c.until) {
		return errors.New("registries take too long; this one is not asked this time")
	}
	limit = min(limit, h.remaining(), c.until.Sub(began))
	if limit <= 0 {
		return fmt.Errorf("registry %s takes too long; it is not asked again this time", name)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = do(ctx)
	took := time.Since(began)
	c.left -= took
	h.spend(took, err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded))
	return err
}

func (r *registries) host(name string) *host {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[name]
	if h == nil {
		h = &host{slots: make(chan struct{}, atOnceToHost), left: hostTime}
		r.hosts[name] = h
	}
	return h
}

func (h *host) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left
}

// spend subtracts what a request took; all that is left if the host did not answer in time.
func (h *host) spend(took time.Duration, late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left -= took
	if late {
		h.left = 0
	}
}
