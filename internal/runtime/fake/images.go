package fake

import (
	"context"
	"fmt"
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/trace"
)

// imageDriver is the Engine as runtime.Images.
type imageDriver struct{ *Engine }

// Resolve returns an image that AddImage or Pull added.
func (r imageDriver) Resolve(ctx context.Context, ref string) (pod.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Resolve", ref); err != nil {
		return pod.Image{}, err
	}
	i, ok := r.images[ref]
	if !ok {
		return i, fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
	}
	return i, nil
}

// Pull adds the image.
func (r imageDriver) Pull(ctx context.Context, ref string, _ ...[]byte) (pod.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Pull", ref); err != nil {
		return pod.Image{}, err
	}
	for r.slow[ref] != nil {
		slow := r.slow[ref]
		if slow.progress.HasTotal() && slow.progress.Done == slow.progress.Layers {
			trace.Of(ctx).Fetched(time.Now())
		}
		r.mu.Unlock()
		select {
		case <-slow.changed:
		case <-ctx.Done():
		}
		r.mu.Lock()
		if err := ctx.Err(); err != nil {
			return pod.Image{}, err
		}
	}
	if digest := r.pushed[ref]; digest != "" {
		r.moved[ref] = digest
		r.scripts[ref] = r.scripts[ref+"@"+digest]
	}
	return store(r.Engine, ref), nil
}

// Digest is that of every image until Push gives it another one.
const Digest = "sha256:fake"

// store adds an image, by its digest too if ref has none.
func store(r *Engine, ref string) pod.Image {
	i := pod.Image{Name: ref, ID: ref}
	if !strings.Contains(ref, "@") {
		digest := r.moved[ref]
		if digest == "" {
			digest = Digest
		}
		i.ID += "@" + digest
		r.images[i.ID] = pod.Image{Name: i.ID, ID: i.ID}
	}
	r.images[ref] = i
	return i
}

// RegistryDigest returns the digest that Push gave to what is under this name, and ErrNotFound if there is nothing.
func (r imageDriver) RegistryDigest(ctx context.Context, ref string, _ ...[]byte) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "RegistryDigest", ref); err != nil {
		return "", err
	}
	if digest := r.pushed[ref]; digest != "" {
		return digest, nil
	}
	return "", fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
}

// Push gives the registry an image of this digest and behaviour under ref. It comes to the machine by Pull.
func (r *Engine) Push(ref, digest string, s Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pushed[ref], r.scripts[ref+"@"+digest] = digest, s
}

// slowPull is the progress of a pull that does not complete until it is changed.
type slowPull struct {
	progress pod.Progress
	changed  chan struct{}
}

// SlowPull makes pulls of ref stop at the progress p; nil lets them complete.
func (r *Engine) SlowPull(ref string, p *pod.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.slow[ref]; before != nil {
		close(before.changed)
	}
	delete(r.slow, ref)
	if p != nil {
		r.slow[ref] = &slowPull{progress: *p, changed: make(chan struct{})}
	}
}

// Pulling returns the progress that SlowPull set.
func (r imageDriver) Pulling(ref string) (pod.Progress, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slow := r.slow[ref]; slow != nil {
		return slow.progress, true
	}
	return pod.Progress{}, false
}

// Show returns the path at which the files would be mounted.
func (r imageDriver) Show(ctx context.Context, image pod.Image, uid pod.UID, volume string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Show", image.Name); err != nil {
		return "", err
	}
	if _, ok := r.images[image.Name]; !ok {
		return "", fmt.Errorf("image %s: %w", image.Name, runtime.ErrNotFound)
	}
	return "/fake/" + string(uid) + "/" + volume, nil
}

// AddImage adds an image and sets the behaviour of its process.
func (r *Engine) AddImage(ref string, s Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := store(r, ref)
	r.scripts[ref], r.scripts[i.ID] = s, s
}
